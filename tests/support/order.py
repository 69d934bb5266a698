"""The order of the test files: what takes long begins early, so that nothing runs alone at the end."""

from __future__ import annotations

# Those that take more than about ten seconds, the longest first.
LONGEST_FIRST = (
    "test_docs", "worker/test_triggers", "worker/test_sinks", "integrations/test_django",
    "server/dashboard/test_browser", "test_faults", "cli/test_processes",
    "worker/test_process_runner", "cli/test_schedules", "store/test_database_errors", "test_typing",
    "test_fastapi_shop", "cli/test_dev_isolation", "proof/test_cost", "store/test_restore",
    "test_failover", "operations/test_audit", "client/test_client", "server/test_limits",
    "worker/test_hung_work", "scheduler/test_faults", "test_reference_workers",
    "server/remote_workers/test_leases", "server/api/test_schema", "store/test_embedded",
    "operations/test_endpoint_reports", "operations/test_endpoints", "server/identity/test_identity",
    "server/identity/test_rights", "server/api/test_tenants", "store/test_plans",
    "store/test_migrations", "store/test_session_settings", "worker/test_wakeups",
    "integrations/test_frameworks", "integrations/test_celery",
    "core/time/test_oracle", "server/api/test_bulk", "lib/test_failpoints", "proof/test_nemesis",
    "proof/test_simulation", "test_node", "observe/test_metrics",
)  # fmt: skip

# What `make test` leaves to `make test-slow`: tests of the surroundings, which build packages, start
# other programs, browsers and services, or run what the docs show; and others that take long.
SLOW = (
    # Packages, installations, deployments
    "test_chart", "test_light_client", "test_packaging", "test_release", "cli/test_systemd",
    # Frameworks, other languages, other people's tools
    "integrations/test_celery", "integrations/test_django", "integrations/test_frameworks",
    "integrations/test_schedule_import", "test_argument_types", "test_fastapi_shop",
    "test_pytest_plugin", "test_reference_workers", "test_sync",
    # The docs and what they show
    "test_docs",
    # Processes, browsers, services, replicas, poolers
    "client/test_client", "operations/test_endpoint_reports", "operations/test_recovery",
    "server/api/test_streams", "test_failover", "test_faults", "test_node",
    "cli/test_access", "cli/test_dev_isolation", "cli/test_processes", "cli/test_remote",
    "scheduler/test_coordination_drivers", "server/dashboard/test_browser",
    "server/dashboard/test_without_script", "server/identity/test_oidc", "server/test_reading",
    "store/test_connections", "store/test_database_roles", "store/test_embedded",
    "store/test_grants", "store/test_restore", "worker/test_commands", "worker/test_triggers",
    "cli/test_dispatched", "runtime/test_dispatch_brokers", "runtime/test_kafka_dispatch",
    "server/dispatch/test_calls",
    "worker/test_dispatch",
    "test_broker_worker",
    "worker/test_kafka_triggers", "worker/test_rabbitmq_triggers", "worker/test_sinks",
    "runtime/test_guarded_brokers", "worker/test_outcome_events",
    # Many or large
    "cli/test_command_tree", "cli/test_commands", "core/time/test_oracle", "lib/test_display",
    "lib/test_failpoints", "operations/test_audit", "operations/test_map_streams",
    "operations/test_workflow_graphs", "proof/test_nemesis", "server/api/test_bulk",
    "server/api/test_schema", "server/api/test_tenants", "store/test_migrations", "store/test_plans",
    "store/test_session_settings",
)  # fmt: skip
