package subscriber

import (
	"context"
	"sync"

	"bindery/commands/readmodel"
	"bindery/events"
	"bindery/ledger"
)

// keeping keeps the documents of a world, as the ledger's writer does.
type keeping struct {
	memory bool
	k      *readmodel.Keeper
	stop   context.CancelFunc
	done   sync.WaitGroup
}

func (k *keeping) prepare(log *ledger.Log) func([]events.Event) {
	k.k = readmodel.New(readmodel.Config{Log: log, Memory: k.memory})
	return k.k.Note
}

func (k *keeping) run(w *world) {
	ctx, stop := context.WithCancel(context.Background())
	k.stop = stop
	k.done.Go(func() { _ = k.k.Run(ctx, w.nc, w.h) })
}

func (k *keeping) halt() {
	k.stop()
	k.done.Wait()
}
