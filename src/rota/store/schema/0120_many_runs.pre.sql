-- begin_runs() makes the steps of many runs at a time.
drop function if exists rota.begin_run(uuid);
