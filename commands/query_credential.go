package commands

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"bindery/projections"
)

// Queries about credentials and rotations.
type (
	// ListHolders lists who can log in to a provider.
	ListHolders struct {
		Provider string `json:"provider"`
		All      bool   `json:"all,omitempty"` // and who could
	}
	// ListCredentials lists asks and holders; what is given narrows the list.
	ListCredentials struct {
		Provider   string `json:"provider,omitempty"`
		Assignment string `json:"assignment,omitempty"`
		State      string `json:"state,omitempty"`
		All        bool   `json:"all,omitempty"` // those that are over, too
	}
	// ListRotations lists the rotations, the newest first.
	ListRotations struct {
		Overdue bool `json:"overdue,omitempty"`
	}
	// ShowRotation shows a rotation.
	ShowRotation struct {
		Rotation string `json:"rotation"`        // id, or the provider it was last about
		Brief    bool   `json:"brief,omitempty"` // without its members
		Limit    int    `json:"limit,omitempty"` // so many members at most; 0: all
	}
	// PreviewRotation tells whom a rotation would touch.
	PreviewRotation struct {
		RotationTarget
		Brief bool `json:"brief,omitempty"` // how many there are on each node, and not who
	}
)

// Name implements Query.
func (ListHolders) Name() string { return "provider.holders" }

// Name implements Query.
func (ListCredentials) Name() string { return "credential.list" }

// Name implements Query.
func (ListRotations) Name() string { return "rotation.list" }

// Name implements Query.
func (ShowRotation) Name() string { return "rotation.show" }

// Name implements Query.
func (PreviewRotation) Name() string { return "rotation.preview" }

// Answer implements Query.
func (q ListHolders) Answer(s *projections.State, _ time.Time) (any, error) {
	r, err := Finder{s}.Provider(q.Provider)
	if err != nil {
		return nil, err
	}
	return s.ListHolders(r, q.All), nil
}

// Answer implements Query.
func (q ListCredentials) Answer(s *projections.State, _ time.Time) (any, error) {
	filter := projections.CredentialFilter{State: q.State, All: q.All}
	var err error
	if q.State != "" && !slices.Contains(projections.CredentialStates(), q.State) {
		return nil, refuse(Usage, fmt.Sprintf("%q is no state of a credential", clip(q.State)),
			"the states are "+strings.Join(projections.CredentialStates(), ", "), do("credential list"))
	}
	if q.Provider != "" {
		if filter.Provider, err = (Finder{s}).Provider(q.Provider); err != nil {
			return nil, err
		}
	}
	if q.Assignment != "" {
		r, err := Finder{s}.Assignment(q.Assignment)
		filter.Assignments = s.EndedAssignments(q.Assignment)
		if err == nil {
			filter.Assignments = append(filter.Assignments, r)
		} else if len(filter.Assignments) == 0 {
			return nil, err
		}
	}
	return s.ListCredentials(filter), nil
}

// Answer implements Query.
func (q ListRotations) Answer(s *projections.State, now time.Time) (any, error) {
	return s.ListRotations(projections.RotationFilter{Overdue: q.Overdue}, now), nil
}

// Answer implements Query.
func (q ShowRotation) Answer(s *projections.State, now time.Time) (any, error) {
	r, err := Finder{s}.Rotation(q.Rotation)
	if err != nil {
		return nil, err
	}
	if q.Brief {
		return s.RotationView(r, now), nil
	}
	return s.RotationMembers(r, now, q.Limit), nil
}

// Answer implements Query.
func (q PreviewRotation) Answer(s *projections.State, _ time.Time) (any, error) {
	all, err := q.rotations(s)
	if err != nil {
		return nil, err
	}
	out := make([]projections.Preview, len(all))
	for i, o := range all {
		out[i] = s.Preview(o, !q.Brief)
	}
	return projections.List[projections.Preview]{Mesh: s.Mesh.Name, Seq: s.Seq, Time: s.Time, Items: out}, nil
}
