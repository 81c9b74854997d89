package agent

import "bindery/commands/service"

// keyOf is the sealing key of a node, if it was asked for, and how often keys were
// forgotten before.
func (d *documents) keyOf(node string) (k service.SealingKey, ok bool, renewed uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k, ok = d.keys[node]
	return k, ok, d.renewed
}

// putKey keeps a sealing key that was asked for, unless keys were forgotten meanwhile.
func (d *documents) putKey(node string, k service.SealingKey, renewed uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.renewed == renewed {
		d.keys[node] = k
	}
}

// forgetKeys has the sealing keys of nodes asked for again; of all where none is named.
func (d *documents) forgetKeys(nodes ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renewed++
	if len(nodes) == 0 {
		clear(d.keys)
	}
	for _, node := range nodes {
		delete(d.keys, node)
	}
}
