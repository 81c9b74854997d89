/*
Package subscriber tells another program what serves whom, and what changes: first
what is there, then each change in order, for as long as it listens.

There are two ways to the same changes, both by requests to the process that serves the
mesh ([service.Client]). [Stream] reads the ledger itself: for operators, auditors, and
whoever can read the store's files. [Documents] reads the documents of one node: for the
node's agent, which may read nothing else, and for the others, too. Who may not read what
it asks for is told so: the iterator ends with a refusal, not_permitted.

# The contract

Of Stream:

  - Each change comes exactly once in one run of the iterator, in the order of the
    ledger's sequence; those of one command have one sequence, and come by id of the
    binding and then in the order of projections.ChangeKinds. That holds over
    restarts of the server, changes of leader and lost connections, as long as the
    connection itself goes on trying, and however slowly the items are taken.
  - Whoever keeps the documents that the changes carry has the documents of the
    ledger at each cursor. A binding that the filter no longer keeps has left.
  - Across runs, with the cursor that came with the last item that was handled, each
    change comes at least once: those after the last cursor that was kept come again.
    A cursor is given at the border of a command only, so that none is half told.
  - A ledger that is not the one a cursor was read from (it was restored to an
    earlier state, or is another one) is a [RestoredError], with the next run as
    within one. Nothing is skipped over it.

Of Documents the same, but for this:

  - A document shows the last of several changes in a row alone; what lies between
    may not be told. What is told is what differs between two documents, in the order
    of the sequence in them: that of the ledger when the document was made, which may
    be later than the change.
  - What no document shows is not told: the credential of a slot that is not, or not
    yet, in use, and who did it and why.
  - A document may come to a node, or go, by a move as well as by its beginning or its
    end: it is then bound or moved, and gone.
  - With a cursor, what may have changed since is told as changed. The server remembers
    the latest changes. Where they do not reach back to the cursor, or another process
    serves by now, all there is is told as changed, and what is gone is not told.

Memory is bounded by the state of the ledger and the changes of one command, or by
the documents of the node; not by how slowly items are taken. A subscriber never
holds up the ledger.
*/
package subscriber
