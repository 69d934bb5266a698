"""What two systems for logs expect of the fields that Rota writes.

From the field reference of the Elastic Common Schema (9.5; the same in 8.11), and from the data
models Change and Authentication of Splunk's Common Information Model (6.2).
"""

from __future__ import annotations

# Names and types. `labels` has texts alone; `rota` is no field of the schema: names of one's own are to
# begin with a proper noun.
ECS = {
    "@timestamp": "date", "message": "text", "labels": "object", "ecs.version": "keyword",
    "log.level": "keyword", "log.logger": "keyword", "error.type": "keyword",
    "error.message": "text", "error.stack_trace": "text", "event.kind": "keyword",
    "event.category": "array", "event.type": "array", "event.action": "keyword",
    "event.outcome": "keyword", "event.id": "keyword", "event.module": "keyword",
    "event.dataset": "keyword", "service.name": "keyword", "service.type": "keyword",
    "service.id": "keyword", "service.node.name": "keyword", "host.name": "keyword",
    "process.pid": "long", "process.thread.name": "keyword", "user.name": "keyword",
    "source.address": "keyword", "source.ip": "ip", "related.user": "array", "related.ip": "array",
    "http.request.id": "keyword",
}  # fmt: skip
ECS_REQUIRED = {"@timestamp", "message", "ecs.version"}
ECS_TYPES = {  # the types of events that a category has
    "authentication": {"start", "end", "info"},
    "configuration": {"access", "change", "creation", "deletion", "info"},
    "iam": {"admin", "change", "creation", "deletion", "group", "info", "user"},
}

CIM_CHANGE = {
    "action", "change_type", "command", "dest", "dvc", "object", "object_attrs", "object_category",
    "object_id", "src", "status", "user", "vendor_product",
}  # fmt: skip
CIM_ACTIONS = {
    "created", "deleted", "acl_modified", "cleared", "modified", "read", "stopped", "started",
    "restarted",
}  # fmt: skip
CIM_STATUS = {"success", "failure"}
CIM_AUTHENTICATION = {"action", "app", "dest", "src", "user"}
CIM_AUTHENTICATION_ACTIONS = {"success", "failure", "pending", "error"}
