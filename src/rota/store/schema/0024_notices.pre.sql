-- Webhooks in the formats of PagerDuty and Teams, and notices by e-mail (their url is mailto:...).
alter table rota.webhook drop constraint webhook_format_check;
alter table rota.webhook add constraint webhook_format_check
    check (format in ('json', 'slack', 'pagerduty', 'teams', 'email'));
