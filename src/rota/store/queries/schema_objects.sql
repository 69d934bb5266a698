-- What the schema consists of, beside what it should.

-- name: schema_objects
-- Partitions and what belongs to them come and go, and are left out.
with place as (
    select relnamespace as oid from pg_class where oid = 'rota.migration'::regclass
), relation as (
    select c.* from pg_class as c, place where c.relnamespace = place.oid and not c.relispartition
), tenant as (
    select oid from pg_roles where rolname = 'rota_tenant'
)
select 'role' as kind, 'rota_tenant' as name, null as definition from tenant
union all
select 'table', relname, null from relation where relkind in ('r', 'p')
union all
select 'sequence', relname, null from relation where relkind = 'S'
union all
select 'view', relname, format('create view %s as %s', oid::regclass, pg_get_viewdef(oid)) from relation where relkind = 'v'
union all
select 'index', relname, replace(pg_get_indexdef(oid), ' ON ONLY ', ' ON ') from relation where relkind in ('i', 'I')
union all
select distinct 'function', p.proname::text, null from pg_proc as p, place where p.pronamespace = place.oid
union all
select 'trigger', format('%s on %s', t.tgname, r.relname), pg_get_triggerdef(t.oid)
from pg_trigger as t join relation as r on r.oid = t.tgrelid where not t.tgisinternal
union all
select 'row security', relname, null from relation where relrowsecurity
union all
select 'policy', format('%s on %s', p.polname, r.relname), null
from pg_policy as p join relation as r on r.oid = p.polrelid
union all
select 'grant', format('%s on %s to rota_tenant', lower(a.privilege_type), r.relname), null
from relation as r cross join aclexplode(r.relacl) as a join tenant on tenant.oid = a.grantee;
