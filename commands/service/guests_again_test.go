package service

import (
	"context"
	"errors"
	"slices"
	"testing"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger"
)

// Kind: a key that is granted and never heard. What failed when it was granted is tried
// again, also where nothing is written any more.
func TestFollowGrantsTriesAgain(t *testing.T) {
	f := newFleet(t, false)
	key, err := ledger.NewKey()
	f.must(err)
	f.do(commands.GrantAccess{Name: "ann", Role: events.RoleOperator, NKey: key.Public})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tries := 0
	FollowGrants(ctx, f.h, func(keys []string) error {
		if !slices.Equal(keys, []string{key.Public}) {
			t.Errorf("it is given %v", keys)
		}
		if tries++; tries < 3 {
			return errors.New("no connection")
		}
		cancel()
		return nil
	})
	if tries != 3 {
		t.Errorf("it is tried %d times, want 3", tries)
	}
}
