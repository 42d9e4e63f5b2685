"""Every error that Onward raises on purpose: one root, a stable code each, the docstring is the message.

A class docstring is a template. ``SessionNotFound(session="ses_…")`` fills it from its keyword arguments, which stay
readable in ``details`` for programs. Surfaces translate ``code`` to an exit status, an HTTP status or a JSON-RPC error;
nothing below a surface knows about those.

It is deliberately not a place for control flow: a caller that can decide beforehand should not have to catch.
"""

from __future__ import annotations

from typing import Any, ClassVar


class OnwardError(Exception):
    """Something went wrong in Onward."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str | None = None, /, **details: Any) -> None:
        """Fill the class docstring from ``details``, or use ``message`` as it is."""
        template = (type(self).__doc__ or "").split("\n\n")[0].replace("\n    ", " ")
        if message is None:
            try:
                message = template.format(**details)
            except (KeyError, IndexError):
                message = template
        super().__init__(message)
        self.message: str = message
        self.details: dict[str, Any] = details


class InvalidInput(OnwardError):
    """{what} is not valid: {why}."""

    code = "invalid_input"


class InvalidId(InvalidInput):
    """{value!r} is not an id of the form {prefix}_ followed by 26 characters."""

    code = "invalid_id"


class LimitExceeded(InvalidInput):
    """{what} may be at most {limit}; this one is {found}."""

    code = "limit_exceeded"


class NotFound(OnwardError):
    """{what} {value} is not here."""

    code = "not_found"


class SessionNotFound(NotFound):
    """There is no session {session} in this store. `onward list` shows what there is."""

    code = "session_not_found"


class EventNotFound(NotFound):
    """There is no event {event}."""

    code = "event_not_found"


class RunNotFound(NotFound):
    """There is no run {run}."""

    code = "run_not_found"


class ManifestNotFound(NotFound):
    """There is no manifest {manifest}."""

    code = "manifest_not_found"


class SourceNotFound(NotFound):
    """Source {index} cannot be used: {why}."""

    code = "source_not_found"


class ApprovalNotFound(NotFound):
    """There is no request to continue {approval} that may be read here. `onward approvals` lists those that wait."""

    code = "approval_not_found"


class Conflict(OnwardError):
    """Somebody else changed {what} in the meantime. Read it again and retry."""

    code = "conflict"
    retryable = True


class LeaseLost(Conflict):
    """Run {run} is no longer held by this runner ({why}). What it says now is not written."""

    code = "lease_lost"
    retryable = False


class InvalidTransition(OnwardError):
    """Run {run} is {found}; it cannot become {wanted}."""

    code = "invalid_transition"


class SessionContinued(OnwardError):
    """This conversation went on in “{title}” ({successor}). Open that one, or branch from here with `onward fork`."""

    code = "session_continued"


class SessionArchived(OnwardError):
    """Session {session} is archived. It can be read; it takes no new messages."""

    code = "session_archived"


class ContinuationRefused(OnwardError):
    """The conversation was not continued: {why}."""

    code = "continuation_refused"


class InvalidContinuation(ContinuationRefused):
    """The continuation is not well formed: {why}."""

    code = "invalid_continuation"


class DelegatedChild(ContinuationRefused):
    """A delegated session reports back to its parent {parent}; it does not continue elsewhere."""

    code = "delegated_child"


class ContinuationLoop(ContinuationRefused):
    """This conversation was just continued and nobody has spoken since. Answer the message first."""

    code = "continuation_loop"


class TooManySuccessors(ContinuationRefused):
    """A session may have at most {limit} continuations; this one has {found}."""

    code = "too_many_successors"


class RateLimited(ContinuationRefused):
    """{found} continuations of this lineage in the last {window} seconds; the limit is {limit}. Try again later."""

    code = "rate_limited"
    retryable = True


class NothingToContinue(ContinuationRefused):
    """No person or trigger has written in session {session} yet, so there is no message to carry over."""

    code = "nothing_to_continue"


class UnresolvedWork(ContinuationRefused):
    """Work is unfinished and would be lost from view: {unresolved}. Settle it first, or name it in `transfer`."""

    code = "unresolved_work"


class BudgetTooSmall(ContinuationRefused):
    """The parts that are never left out need {needed} tokens ({counter}); the budget is {budget}."""

    code = "budget_too_small"


class ContinuationParked(OnwardError):
    """The continuation waits for a person, who can look at it and accept it: `onward approve {approval}`."""

    code = "continuation_parked"


class ContinuationDeclined(ContinuationRefused):
    """A person declined this continuation: {why}."""

    code = "continuation_declined"


class ApprovalAnswered(OnwardError):
    """Request {approval} was accepted; the conversation went on in {successor}."""

    code = "approval_answered"


class CycleRefused(ContinuationRefused):
    """Linking {from_session} to {to_session} would close a circle."""

    code = "cycle_refused"


class ReferenceRefused(OnwardError):
    """The message was not sent, because of a session that it refers to: {why}."""

    code = "reference_refused"


class ReferenceInvalid(ReferenceRefused):
    """{text!r} at character {position} does not name a session: {why}. Write @[label](onward-session:…)."""

    code = "reference_invalid"


class ReferenceSelf(ReferenceRefused):
    """Session {session} cannot refer to itself: what it holds is in view already."""

    code = "reference_self"


class ReferenceTooMany(ReferenceRefused):
    """A message may refer to at most {limit} sessions; this one refers to {found}. Send the others with another message."""

    code = "reference_too_many"


class ReferenceReadFailed(ReferenceRefused):
    """Session {session} cannot be quoted: {why}. Nothing was sent."""

    code = "reference_read_failed"


class ReferenceBudgetExceeded(ReferenceRefused):
    """What must stay of session {session} needs {needed} bytes; a quoted session may take {limit}. Nothing was sent."""

    code = "reference_budget_exceeded"


class ReferenceCancelled(ReferenceRefused):
    """Quoting other sessions was cancelled. Nothing was sent."""

    code = "reference_cancelled"


class StoreError(OnwardError):
    """The store failed: {why}."""

    code = "store_error"


class StoreFull(StoreError):
    """There is no room left to write {path} ({why}). Nothing was written; what was there is intact."""

    code = "store_full"


class StoreReadOnly(StoreError):
    """{path} cannot be written: {why}."""

    code = "store_read_only"


class NotAStore(StoreError):
    """{path} is not an Onward store: {why}. It was left as it is."""

    code = "not_a_store"


class StoreTooNew(StoreError):
    """{path} was written by a newer Onward (schema {found}; this one knows {known}). Upgrade Onward to open it."""

    code = "store_too_new"


class StoreBusy(StoreError):
    """{path} was locked by another process for {seconds} seconds. Nothing was written; try again."""

    code = "store_busy"
    retryable = True


class StoreClosed(StoreError):
    """The store was closed."""

    code = "store_closed"


class VerificationFailed(OnwardError):
    """Session {session}, event {seq}: {why}."""

    code = "verification_failed"


class EngineError(OnwardError):
    """Engine {engine} failed: {why}."""

    code = "engine_error"


class EngineUnavailable(EngineError):
    """Engine {engine} cannot run here: {why}."""

    code = "engine_unavailable"


class ProgramMissing(EngineError):
    """{program} cannot be started: {why}. Install it, or say where it is with the engine option `program`."""

    code = "program_missing"


class NativeSessionBusy(EngineError):
    """Somebody else works in this conversation of {engine} ({holder}). Wait until they are done; two would split it."""

    code = "busy"
    retryable = True


class MissingCapability(EngineError):
    """Engine {engine} lacks what this run requires: {missing}. It offers {offered}."""

    code = "missing_capability"


class EngineTimeout(EngineError):
    """Engine {engine} did not finish within {seconds} seconds and was stopped."""

    code = "engine_timeout"
    retryable = True


class EngineRateLimited(EngineError):
    """Engine {engine} was told to wait: {why}."""

    code = "engine_rate_limited"
    retryable = True


class ContinuationModeUnavailable(EngineError):
    """Engine {engine} keeps no conversation of its own for this session, so `native` has nothing to continue."""

    code = "continuation_mode_unavailable"


class ImportFailed(OnwardError):
    """{path} could not be imported: {why}."""

    code = "import_failed"


class MissingExtra(OnwardError):
    """{feature} needs the `{extra}` extra: pip install 'onward[{extra}]'."""

    code = "missing_extra"


class EmbeddingFailed(OnwardError):
    """Embedding with {model} failed: {why}. Unset ONWARD_EMBEDDING_MODEL to search without it."""

    code = "embedding_failed"


class MachineNotFound(NotFound):
    """There is no machine {machine}. `onward machines` lists those that are registered."""

    code = "machine_not_found"


class WorkspaceNotFound(NotFound):
    """There is no workspace {workspace}."""

    code = "workspace_not_found"


class TokenNotFound(NotFound):
    """There is no token {token}. `onward tokens list` shows those of this account."""

    code = "token_not_found"


class Unauthorized(OnwardError):
    """A valid token is needed: send `Authorization: Bearer TOKEN` ({why})."""

    code = "unauthorized"


class Forbidden(OnwardError):
    """This is not allowed: {why}."""

    code = "forbidden"


class TooManyRequests(OnwardError):
    """More than {limit} requests a second; wait {seconds} seconds and ask again."""

    code = "too_many_requests"
    retryable = True


class TooManyStreams(OnwardError):
    """{found} streams of this account are open here; the limit is {limit}. Close one that nobody reads."""

    code = "too_many_streams"
    retryable = True


class ServerBusy(OnwardError):
    """This server has {limit} streams open and takes no more. Ask again later, or another server."""

    code = "server_busy"
    retryable = True


class ServerUnreachable(OnwardError):
    """The server at {url} did not answer: {why}."""

    code = "server_unreachable"
    retryable = True
