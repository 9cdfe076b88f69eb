// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/open-policy-agent/opa/v1/storage"

	"sluice.dev/policies/engine/dependency"
)

// dataView is what one policy reads of a version of the data, for one kind of request.
type dataView struct {
	data *Data
	// err is the data that is missing; nil if all that the policy names exists.
	err error
	// digest identifies what the policy reads, without the objects that depend on the request's namespace.
	digest digest
	// namespaced are the kinds of which the policy sees other objects in each namespace.
	namespaced []*ObjectKind
}

// dataViews are the views of a policy that reads data; nil where it reads none.
type dataViews [requestKindCount]*dataView

// newDataView returns the view of a policy that reads this of the data; nil if it reads nothing.
func newDataView(data *Data, reads *DataReads) *dataView {
	if reads.IsEmpty() {
		return nil
	}
	v := &dataView{data: data}
	missing := data.Missing(reads)
	if len(missing) > 0 {
		v.err = &missingDataError{missing}
	}
	h := sha256.New()
	names := make([]string, 0, len(reads.Config))
	for _, read := range reads.Config {
		names = append(names, read.Name)
	}
	if reads.AllConfig {
		names = append(names, data.configNames()...)
		slices.Sort(names)
	}
	for _, name := range slices.Compact(names) {
		config, _ := data.configOf(name)
		hashText(h, name)
		hashText(h, string(config.digest[:]))
	}
	kinds := reads.Kinds
	if reads.AllKinds {
		kinds = data.kindNames()
	}
	for _, name := range kinds {
		kind := data.kindOf(name)
		hashText(h, dependency.ObjectData+" "+name)
		if kind == nil {
			continue
		}
		hashText(h, string(kind.Scope))
		if kind.Scope != ScopeCluster {
			v.namespaced = append(v.namespaced, kind)
		}
		if kind.Scope != ScopeNamespace {
			sum := kind.digestOfAll()
			hashText(h, string(sum[:]))
		}
	}
	for _, text := range missing {
		hashText(h, text)
	}
	v.digest = digest(h.Sum(nil))
	return v
}

// appendKey appends what identifies the data that the policy reads for a request in a namespace.
func (v *dataView) appendKey(to []byte, namespace string) []byte {
	to = append(to, v.digest[:]...)
	if len(v.namespaced) == 0 {
		return to
	}
	h := sha256.New()
	hashText(h, namespace)
	for _, kind := range v.namespaced {
		sum := kind.digestOf(namespace)
		hashText(h, string(sum[:]))
	}
	return h.Sum(to)
}

// WithData returns the same policies with another version of the data; the set itself if its policies
// read the same of both.
func (s *Set) WithData(data *Data) *Set {
	with := *s
	with.setData(data)
	if with.digest == s.digest {
		return s
	}
	return &with
}

// setData sets the data that the policies read, and the digest of the set.
func (s *Set) setData(data *Data) {
	s.data, s.views, s.digest = data, nil, s.policiesDigest
	h := sha256.New()
	for _, m := range s.members {
		if m.unusable != nil {
			continue
		}
		var views dataViews
		for kind, reads := range m.module.dataReads {
			if views[kind] = newDataView(data, reads); views[kind] == nil {
				continue
			}
			if s.views == nil {
				s.views = make(map[*policy]dataViews)
			}
			s.views[m.policy] = views
			hashText(h, string(views[kind].digest[:]))
			for _, of := range views[kind].namespaced {
				sum := of.digestOfAll()
				hashText(h, string(sum[:]))
			}
		}
	}
	if s.views != nil {
		hashText(h, s.policiesDigest)
		s.digest = hex.EncodeToString(h.Sum(nil))
	}
}

// view returns what a policy reads of the data; nil if it reads nothing.
func (s *Set) view(p *policy, kind requestKind) *dataView {
	if s.views == nil {
		return nil
	}
	return s.views[p][kind]
}

// noData is the transaction of a policy that reads no data.
var noData storage.Transaction = dataTransaction{}

// transaction returns the data of one policy for a request in a namespace.
func (v *dataView) transaction(namespace string) storage.Transaction {
	if v == nil {
		return noData
	}
	return dataTransaction{v.data, namespace}
}

// namespace returns the namespace of the request.
func (in *Input) namespace() string {
	namespace, _ := in.Review.Field("namespace").Value().(string)
	return namespace
}

// PoliciesDigest identifies the policies of the set with their matches and parameters, without data.
func (s *Set) PoliciesDigest() string { return s.policiesDigest }

// DigestFor identifies all that decides on an object of a subject beside its input: the policies, and the
// data that those read which match the subject. Sets that differ only in other data have the same one.
func (s *Set) DigestFor(subject Subject, namespace string) string {
	if s.views == nil {
		return s.policiesDigest
	}
	var key []byte
	for _, m := range s.admission.match(subject) {
		for _, view := range s.views[m.policy] {
			if view != nil {
				key = view.appendKey(key, namespace)
			}
		}
	}
	if key == nil {
		return s.policiesDigest
	}
	h := sha256.New()
	hashText(h, s.policiesDigest)
	_, _ = h.Write(key)
	return hex.EncodeToString(h.Sum(nil))
}

// DataDigests returns digests of the data that the policies read for requests in a namespace, by its names, such as config.registries
// and objects.StorageClass: those that match a subject, or all without one; nil if they read none.
func (s *Set) DataDigests(namespace string, subjects ...Subject) map[string]string {
	if s.views == nil {
		return nil
	}
	members := s.members
	if len(subjects) > 0 {
		members = nil
		for _, subject := range subjects {
			members = append(members, s.admission.match(subject)...)
		}
	}
	digests := make(map[string]string)
	for _, m := range members {
		for kind, view := range s.views[m.policy] {
			if view != nil {
				view.addDigests(digests, m.module.dataReads[kind], namespace)
			}
		}
	}
	if len(digests) == 0 {
		return nil
	}
	return digests
}

// addDigests adds the digests of the data that a policy reads.
func (v *dataView) addDigests(to map[string]string, reads *DataReads, namespace string) {
	configs := v.data.configNames()
	if !reads.AllConfig {
		configs = nil
		for _, read := range reads.Config {
			configs = append(configs, read.Name)
		}
	}
	for _, name := range configs {
		config, _ := v.data.configOf(name)
		to["config."+name] = hex.EncodeToString(config.digest[:])
	}
	kinds := v.data.kindNames()
	if !reads.AllKinds {
		kinds = reads.Kinds
	}
	for _, name := range kinds {
		var sum digest
		if kind := v.data.kindOf(name); kind != nil {
			sum = kind.digestOf(namespace)
		}
		to["objects."+name] = hex.EncodeToString(sum[:])
	}
}

// MissingData returns what each policy of the set reads that does not exist, by the policies' names.
func (s *Set) MissingData() map[string][]string {
	var missing map[string][]string
	for _, m := range s.members {
		if s.views[m.policy] == (dataViews{}) {
			continue
		}
		if texts := s.data.Missing(m.module.allReads()); len(texts) > 0 {
			if missing == nil {
				missing = make(map[string][]string)
			}
			missing[m.source.Name] = texts
		}
	}
	return missing
}

// UpdateData replaces the data that the policies read. A policy that reads nothing of what changed keeps
// its cached results.
func (e *Engine) UpdateData(data *Data) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.data = data
	if current := e.current.Load(); current != nil {
		e.current.Store(current.WithData(data))
	}
}

// Data returns the data that policies read.
func (e *Engine) Data() *Data {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.data
}
