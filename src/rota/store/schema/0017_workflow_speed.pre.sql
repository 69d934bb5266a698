-- The graphs in which a step may start before all steps before it have ended: those of which rota.end_steps() has to lock more.
create index workflow_step_early on rota.workflow_step (workflow_id) where rule in ({rule.one_succeeded}, {rule.one_failed});
