-- Jobs of an order_key may lie in several sublanes: with other keys, other needs, or of tasks with limits of their own. A
-- claim looks at all of them.
create index sublane_order on rota.sublane (namespace, queue, rota.share_part(share, 'o'))
    where rota.share_part(share, 'o') is not null;

-- The order is that of the whole key, and no longer of one sublane.
drop function if exists rota.next_in_order(text, text, uuid);
