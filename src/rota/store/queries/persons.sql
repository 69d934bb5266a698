-- Keys of persons. $1 is the namespace.

-- name: find_persons
-- Those whose names have one of these fingerprints: usually one, or two after a change of the encryption key.
select p.id, p.key from rota.person as p
where p.namespace = $1 and p.fingerprint = any($2::text[]) order by p.created_at, p.id;

-- name: add_person
insert into rota.person (namespace, id, fingerprint, key) values ($1, $2, $3, $4)
on conflict (namespace, fingerprint) where not rotated do nothing;

-- name: key_of_person
-- Its key is null once it is destroyed.
select p.key, p.erased_at from rota.person as p where p.namespace = $1 and p.id = $2;

-- name: list_persons
-- The latest to be erased first, then the latest to be made. $2: only those that are erased, or only those that aren't.
select p.id, p.created_at, p.erased_at from rota.person as p
where p.namespace = $1 and ($2::boolean is null or (p.erased_at is not null) = $2)
order by p.erased_at desc nulls last, p.created_at desc, p.id desc limit $3;

-- name: erase_persons
-- Those with these fingerprints or ids; whose keys are destroyed already stay as they are.
update rota.person as p set key = null, fingerprint = null, erased_at = rota.now()
where p.namespace = $1 and p.key is not null and (p.fingerprint = any($2::text[]) or p.id = any($3::uuid[]))
returning p.id, p.created_at, p.erased_at;

-- name: encryption_keys_of_persons
select distinct substring(p.key from '^[$]rota-encrypted:1[.]([A-Za-z0-9_-]+)[.]') as key from rota.person as p
where p.namespace = $1 and p.key is not null order by 1;

-- name: known_persons
select p.id, p.created_at, p.erased_at from rota.person as p where p.namespace = $1 and p.id = any($2::uuid[]);
