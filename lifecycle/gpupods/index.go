// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpupods

// The indices that have a place in each record.
const (
	ofNamespace = iota
	ofController
	ofNode
	indices
)

// index finds the records that have a key in common. It is a map of slices, in
// which each record knows its place, since a map for each key would take more
// memory than the records.
type index[K comparable] struct {
	which   int
	records map[K][]*record
}

func newIndex[K comparable](which int) index[K] {
	return index[K]{which: which, records: map[K][]*record{}}
}

// add puts r under k. The zero key stands for none.
func (x *index[K]) add(k K, r *record) {
	var none K
	if k == none {
		return
	}
	r.at[x.which] = int32(len(x.records[k])) // #nosec G115 -- no cluster has 2 billion pods
	x.records[k] = append(x.records[k], r)
}

// remove takes r away from under k, and moves the last to its place.
func (x *index[K]) remove(k K, r *record) {
	all := x.records[k]
	at := int(r.at[x.which])
	if at >= len(all) || all[at] != r {
		return // was never added: it had no key
	}
	last := len(all) - 1
	all[at] = all[last]
	all[at].at[x.which] = r.at[x.which]
	all[last] = nil
	if last == 0 {
		delete(x.records, k)
		return
	}
	x.records[k] = all[:last]
}
