"""The order of the test files: what takes long begins early, so that nothing runs alone at the end."""

from __future__ import annotations

# Those that take more than about ten seconds, the longest first.
LONGEST_FIRST = (
    "test_docs", "integrations/test_django",
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
