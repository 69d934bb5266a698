-- Roles of the installation, beside the built-in ones, which are in the code.
create table rota.access_role (
    name        text collate "C" primary key check (name not in ('viewer', 'operator', 'admin', 'worker')),
    permissions text[] not null,                 -- queues:write, or queues for all of queues
    namespaces  text[] not null default '{}',    -- in which it holds; empty: all
    tasks       text[] not null default '{}',    -- whose jobs it may submit; empty: all
    queues      text[] not null default '{}',    -- to which it may submit jobs; empty: all
    description text not null default '',
    created_at  timestamptz not null default rota.now(),
    updated_at  timestamptz not null default rota.now()
);

-- What somebody has in a namespace is now one role or several, as viewer,mailer.
alter table rota.api_token drop constraint api_token_role_check;
alter table rota.membership drop constraint membership_role_check;
alter table rota.login_link drop constraint login_link_role_check;
alter table rota.session drop constraint session_role_check;
