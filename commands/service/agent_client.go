package service

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"bindery/commands"
)

// Connection tells how often the client's connection was made, and whether it is
// closed for good. After it was made anew, another ledger may answer.
func (c *Client) Connection() (made uint64, closed bool) {
	return c.nc.Stats().Reconnects + 1, c.nc.IsClosed()
}

// agent asks for an action and decodes the answer. Its error is a *commands.Refusal.
func (c *Client) agent(ctx context.Context, do string, args, into any, silence time.Duration) error {
	a, err := json.Marshal(args)
	if err != nil {
		return err
	}
	data, err := c.request(ctx, AgentSubject(c.mesh), AgentMessage{Do: do, Args: a}, silence)
	if err != nil {
		r := AsRefusal(err)
		if r.Code == commands.OutcomeUnknown {
			r.Code, r.Message = commands.Unreachable, "no answer in time: "+strings.TrimSuffix(err.Error(), ".")
		}
		return r
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(data, into)
}

// Lease acquires or renews the lease of a node.
func (c *Client) Lease(ctx context.Context, r LeaseRequest) (out LeaseAnswer, err error) {
	err = c.agent(ctx, doLease, r, &out, silent)
	return out, err
}

// Release gives the lease of a node up.
func (c *Client) Release(ctx context.Context, r LeaseRequest) error {
	return c.agent(ctx, doRelease, r, nil, silent)
}

// PublishKey publishes the sealing key of a node.
func (c *Client) PublishKey(ctx context.Context, r KeyRequest) error {
	return c.agent(ctx, doKey, r, nil, silent)
}

// Seal stores a sealed secret.
func (c *Client) Seal(ctx context.Context, r SealRequest) (out SealAnswer, err error) {
	err = c.agent(ctx, doSeal, r, &out, silent)
	return out, err
}

// Unseal removes a sealed secret.
func (c *Client) Unseal(ctx context.Context, r UnsealRequest) error {
	return c.agent(ctx, doUnseal, r, nil, silent)
}

// Sealed fetches secrets that are sealed for a node.
func (c *Client) Sealed(ctx context.Context, r SealedRequest) (out SealedAnswer, err error) {
	err = c.agent(ctx, doSealed, r, &out, silent)
	return out, err
}

// Keys fetches the sealing keys of nodes.
func (c *Client) Keys(ctx context.Context, r KeysRequest) (out KeysAnswer, err error) {
	err = c.agent(ctx, doKeys, r, &out, silent)
	return out, err
}

// Wait waits until there is something new for the agent of a node.
func (c *Client) Wait(ctx context.Context, r WaitRequest) (out WaitAnswer, err error) {
	err = c.agent(ctx, doWait, r, &out, silent+time.Duration(r.Wait)*time.Millisecond)
	return out, err
}
