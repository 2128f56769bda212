"""What schemathesis must know of carom beyond the description: JSON lines, and rules that JSON Schema cannot express.

All checks are on. A failure is dropped only if the answer names one of these rules as its reason."""

import json
import re

import schemathesis

LINES = "application/x-ndjson"
YOURLS = "/yourls-api.php"
BULK = "/rest/v3/short-urls/bulk"
CHANGES = "/rest/v3/short-urls/bulk/changes"
IMPORT = "/rest/v3/short-urls/bulk/import"
PURGES = "/rest/v3/purges"
CONFIRMED_MAX = 2**53 - 1
AFTER_MAX = 3600
MERCURE = "/rest/v3/mercure-info"
PIXEL = "/{shortCode}/track"

# Reasons of a 400 for a request that fits the description. The description states each rule in words, but no schema can.
# A request that is refused for any other reason is a finding.
RULES = re.compile(
    "|".join(
        (
            # Two fields are compared.
            "validSince must be before validUntil",
            "private generates a random code, so it cannot be combined with",
            "(?:tag|app) cannot be combined with shortCode",
            "after must be absent with purge",
            # A setting allows slashes in slugs.
            "slashes need the setting",
            # The prefix and the slug behind it have one limit together.
            r"customSlug has \d+ characters; at most 64 are allowed",
            # The slug belongs to another link.
            "error/non-unique-slug",
            "This slug is already in use",
            # Tags are counted when they are all in one form.
            "tags are too many",
            # The URL standard decides what a host is, and how long the serialised form of a URL is.
            "is not an absolute URL: (invalid|empty)",
            "has no host",
            "has a user name or password",
            "is longer than 2048 bytes",
            "points to this service itself",
            # Time has passed since the description was written.
            "must be in the future",
            # The settings say which domains there are.
            "domain is not a domain of this service",
            # A pattern that knows addresses would be longer than this page.
            "must be an IP address, a network",
            "ipAddress is not an IP address",
            "redirectRules are too long",
            # Only texts that a list has given are cursors.
            "cursor is not a cursor of this list",
            # A cursor of another log, with an answer that the description has.
            "Events after this cursor are no longer kept",
        )
    ),
    re.IGNORECASE,
)


@schemathesis.serializer(LINES)
def write_line(ctx, value):
    """Writes a value as the only line of a body."""
    return json.dumps(value).encode() + b"\n"


@schemathesis.deserializer(LINES)
def read_line(ctx, response):
    """Returns the last line: the one that may tell of a problem. Every line must be JSON."""
    lines = [json.loads(line) for line in response.content.splitlines()]
    return lines[-1] if lines else None


@schemathesis.hook
def before_call(context, case, kwargs):
    """Makes each purge confirm no link, so that it deletes none of the links that other requests are about. Makes deletes
    within a sequence immediate."""
    if case.operation.path == PURGES and isinstance(case.body, dict):
        confirmed = case.body.get("confirm")
        # carom must refuse all other values, so they are sent as they are.
        if type(confirmed) is int and 0 < confirmed <= CONFIRMED_MAX:
            case.body = {**case.body, "confirm": 0}
    if is_late_delete(case):
        case.query = {name: value for name, value in case.query.items() if name != "after"}


def is_late_delete(case):
    """Whether a request deletes a link only later, within a sequence that then expects it to be gone."""
    is_of_sequence = case.meta is not None and case.meta.phase.name == "stateful"
    after = (case.query or {}).get("after")
    return is_of_sequence and case.method.upper() == "DELETE" and type(after) is int and 1 <= after <= AFTER_MAX


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Returns whether a failure is a finding."""
    text = response.content.decode(errors="replace")
    return is_finding(type(failure).__name__, case.operation.path, text, case, response)


def is_finding(kind, path, text, case, response):
    # As Shlink says that it has no Mercure hub.
    if kind == "ServerError" and path == MERCURE:
        return response.status_code != 501
    if kind == "RejectedPositiveData":
        return not (RULES.search(text) or path == YOURLS and lacks_a_parameter(case))
    if kind == "AcceptedNegativeData":
        # Bulk requests answer 200 and refuse each wrong line in its result.
        if path in (BULK, CHANGES, IMPORT):
            return read_line(None, response)["status"] < 400
        # One path has many actions, and each passes over the parameters of the others. Every code has a pixel, so that no
        # mail shows a broken image.
        return path not in (YOURLS, PIXEL)
    # Without links, an export is empty: there is no line that could fit the schema of a line.
    return not (kind == "JsonSchemaError" and response.status_code == 200 and response.content == b"")


def lacks_a_parameter(case):
    """Whether an action of YOURLS is asked for without the parameter that it or its format needs, or with a URL that is none."""
    fields = {**(case.query or {}), **(case.body if isinstance(case.body, dict) else {})}
    return fields.get("action") in ("shorturl", "expand", "url-stats") or fields.get("format") == "jsonp"
