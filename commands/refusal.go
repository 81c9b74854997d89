package commands

import (
	"fmt"
	"slices"
	"strings"

	"bindery/events"
	"bindery/projections"
)

// Code names a refusal or a failure, for machines. The list is only appended to.
type Code string

// The codes.
const (
	NameInvalid         Code = "name_invalid"
	NameTaken           Code = "name_taken"
	NameReserved        Code = "name_reserved"
	NameMoved           Code = "name_moved"
	NodeNotFound        Code = "node_not_found"
	ProvisionNotFound   Code = "provision_not_found"
	ProviderNotFound    Code = "provider_not_found"
	ModuleNotFound      Code = "module_not_found"
	AssignmentNotFound  Code = "assignment_not_found"
	BindingNotFound     Code = "binding_not_found"
	OverrideNotFound    Code = "override_not_found"
	DefaultNotFound     Code = "default_not_found"
	EventNotFound       Code = "event_not_found"
	MeshScopeTaken      Code = "mesh_scope_taken"
	EndpointTaken       Code = "endpoint_taken"
	EndpointInvalid     Code = "endpoint_invalid"
	VersionInvalid      Code = "version_invalid"
	FeatureInvalid      Code = "feature_invalid"
	SecretInLedger      Code = "secret_in_ledger"
	AmbiguousProvider   Code = "ambiguous_provider"
	NoProvider          Code = "no_provider"
	VersionUnsatisfied  Code = "version_unsatisfied"
	FeatureMissing      Code = "feature_missing"
	WrongProvision      Code = "wrong_provision"
	ProviderCordoned    Code = "provider_cordoned"
	ProviderRetired     Code = "provider_retired"
	ProviderMoved       Code = "provider_moved"
	ProviderInUse       Code = "provider_in_use"
	NodeInUse           Code = "node_in_use"
	ModuleInUse         Code = "module_in_use"
	ProvisionInUse      Code = "provision_in_use"
	SlotInUse           Code = "slot_in_use"
	SlotNotDeclared     Code = "slot_not_declared"
	OverrideInForce     Code = "override_in_force"
	EmbeddedPrivate     Code = "embedded_private"
	EmbedNotReplaceable Code = "embed_not_replaceable"
	ReasonRequired      Code = "reason_required"
	CommandIDReused     Code = "command_id_reused"
	CommandIDExpired    Code = "command_id_expired"
	LedgerMoved         Code = "ledger_moved"
	LedgerMissing       Code = "ledger_missing"
	LedgerExists        Code = "ledger_exists"
	LedgerDamaged       Code = "ledger_damaged"
	ForeignEvent        Code = "foreign_event"
	LedgerSealed        Code = "ledger_sealed"
	NewerLedger         Code = "newer_ledger"
	StoreLocked         Code = "store_locked"
	StoreUnusable       Code = "store_unusable"
	Unreachable         Code = "unreachable"
	OutcomeUnknown      Code = "outcome_unknown"
	TooLarge            Code = "too_large"
	WrongMesh           Code = "wrong_mesh"
	LedgerExposed       Code = "ledger_exposed"
	ManifestInvalid     Code = "manifest_invalid"
	ManifestConflict    Code = "manifest_conflict"
	DuplicateDefault    Code = "duplicate_default"
	ManifestUnreadable  Code = "manifest_unreadable"
	DuplicateNode       Code = "duplicate_node"
	DuplicateOverride   Code = "duplicate_override"
	RotationNotFound    Code = "rotation_not_found"
	RotationOpen        Code = "rotation_open"
	RotationClosed      Code = "rotation_closed"
	NoCredentials       Code = "no_credentials"
	NotAdopted          Code = "not_adopted"
	AlreadyIssued       Code = "already_issued"
	GenerationUnknown   Code = "generation_unknown"
	SecretRefForeign    Code = "secret_ref_foreign"
	AtBeyondHead        Code = "at_beyond_head"
	AtRegressed         Code = "at_regressed"
	NeedsServe          Code = "needs_serve"
	AmbiguousSlot       Code = "ambiguous_slot"
	StillPending        Code = "still_pending"
	NotPermitted        Code = "not_permitted"
	AccessNotFound      Code = "access_not_found"
	NKeyInvalid         Code = "nkey_invalid"
	NKeyTaken           Code = "nkey_taken"
	LastOperator        Code = "last_operator"
	LastWriter          Code = "last_writer"
	LedgerRestored      Code = "ledger_restored"
	NothingLost         Code = "nothing_lost"
	AsOfWrite           Code = "asof_write"
	CheckpointInvalid   Code = "checkpoint_invalid"
	BackupInvalid       Code = "backup_invalid"
	CommandFailed       Code = "command_failed"
	DuplicateLogin      Code = "duplicate_login"
	MadeByAgent         Code = "made_by_agent"
	RevocationUnproven  Code = "revocation_unproven"
	TooOften            Code = "too_often"
	Usage               Code = "usage"
	Interrupted         Code = "interrupted"
	Internal            Code = "internal"
)

// Exit codes of the command line.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitDiffers     = 3
	ExitRefused     = 4
	ExitNotFound    = 5
	ExitConflict    = 6
	ExitUnreachable = 7
	ExitTimedOut    = 8
	ExitIntegrity   = 9
	ExitInterrupted = 130
)

// exitCodes gives the codes whose exit is not ExitRefused.
var exitCodes = map[Code]int{
	NameInvalid: ExitUsage, NameReserved: ExitUsage, EndpointInvalid: ExitUsage, VersionInvalid: ExitUsage,
	FeatureInvalid: ExitUsage, SecretInLedger: ExitUsage, ManifestInvalid: ExitUsage, Usage: ExitUsage,
	AsOfWrite: ExitUsage, TooLarge: ExitUsage, NKeyInvalid: ExitUsage, ReasonRequired: ExitUsage, DuplicateNode: ExitUsage, DuplicateOverride: ExitUsage, DuplicateLogin: ExitUsage, ManifestUnreadable: ExitUsage,

	NodeNotFound: ExitNotFound, ProvisionNotFound: ExitNotFound, ProviderNotFound: ExitNotFound,
	ModuleNotFound: ExitNotFound, AssignmentNotFound: ExitNotFound, BindingNotFound: ExitNotFound,
	OverrideNotFound: ExitNotFound, DefaultNotFound: ExitNotFound, EventNotFound: ExitNotFound,
	SlotNotDeclared: ExitNotFound, LedgerMissing: ExitNotFound, RotationNotFound: ExitNotFound, GenerationUnknown: ExitNotFound,
	AccessNotFound: ExitNotFound,

	CommandIDReused: ExitConflict, CommandIDExpired: ExitConflict, LedgerMoved: ExitConflict, ProviderMoved: ExitConflict,

	NeedsServe: ExitUnreachable, StoreLocked: ExitUnreachable, Unreachable: ExitUnreachable, StoreUnusable: ExitUnreachable,
	OutcomeUnknown: ExitTimedOut, StillPending: ExitTimedOut, TooOften: ExitTimedOut,
	LedgerDamaged: ExitIntegrity, ForeignEvent: ExitIntegrity, LedgerRestored: ExitIntegrity, CheckpointInvalid: ExitIntegrity, BackupInvalid: ExitIntegrity, NewerLedger: ExitFailed,
	Interrupted: ExitInterrupted, Internal: ExitFailed, CommandFailed: ExitFailed,
}

// Exit is the exit code of the command line for the code.
func (c Code) Exit() int {
	if n, ok := exitCodes[c]; ok {
		return n
	}
	return ExitRefused
}

// Candidate is one thing that could have been meant or chosen.
type Candidate struct {
	Name string     `json:"name"`
	ID   *events.ID `json:"id,omitempty"`
	Node string     `json:"node,omitempty"`
	Why  string     `json:"why,omitempty"`  // the rule that excluded it, or what it stands for
	Flag string     `json:"flag,omitempty"` // what to pass to choose it
	Fix  Fix        `json:"fix,omitzero"`   // the command that chooses it, or sees to it
}

// Fix is one command that helps, as a value.
type Fix = projections.Fix

func do(verb string, args ...string) Fix { return projections.Do(verb, args...) }

func again() Fix { return projections.Again() }

func advise(text string) Fix { return projections.Advise(text) }

// Refusal says why a command was not carried out. Nothing was written.
type Refusal struct {
	Code       Code        `json:"code"`
	Message    string      `json:"message"` // what
	Why        string      `json:"why"`
	Fix        Fix         `json:"fix"` // one command that helps
	Candidates []Candidate `json:"candidates"`
}

func (r *Refusal) Error() string {
	if r.Why == "" {
		return fmt.Sprintf("%s [%s]", r.Message, r.Code)
	}
	return fmt.Sprintf("%s: %s [%s]", r.Message, r.Why, r.Code)
}

// refuse makes a refusal; why and fix may be empty.
func refuse(code Code, message, why string, fix Fix) *Refusal {
	return &Refusal{Code: code, Message: message, Why: why, Fix: fix, Candidates: []Candidate{}}
}

// MaxCandidates bounds what a refusal lists; what is cut is said.
const MaxCandidates = 100

// of adds the things that stand in the way, by name, sorted.
func (r *Refusal) of(label string, names []string) *Refusal {
	if len(r.Candidates) > MaxCandidates {
		return r // cut already
	}
	names = slices.Clone(names)
	slices.Sort(names)
	for i, n := range names {
		if len(r.Candidates) == MaxCandidates {
			r.Candidates = append(r.Candidates, Candidate{Name: "…", Why: fmt.Sprintf("and %d more", len(names)-i)})
			break
		}
		r.Candidates = append(r.Candidates, Candidate{Name: n, Why: label})
	}
	return r
}

// count is "1 binding", "3 bindings".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// stays is "1 slot stays", "3 slots stay".
func stays(n int, what string) string {
	if n == 1 {
		return count(n, what) + " stays"
	}
	return count(n, what) + " stay"
}

// goes is "1 slot goes", "3 slots go".
func goes(n int, what string) string {
	if n == 1 {
		return count(n, what) + " goes"
	}
	return count(n, what) + " go"
}

func quoteList(names []string) string {
	const most = 6
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
