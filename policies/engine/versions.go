// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"sluice.dev/api/policytime"
)

// Version identifies a policy in force.
type Version struct {
	// Policy is the policy's name.
	Policy string
	// Generation is the generation of the source in force.
	Generation int64
	// Digest identifies everything in the source but its generation: 32 hexadecimal digits.
	Digest string
}

// VersionDigestBytes is the number of bytes of a [Version]'s digest.
const VersionDigestBytes = 16

func (m *member) version() Version {
	return Version{Policy: m.source.Name, Generation: m.source.Generation, Digest: hex.EncodeToString(m.digest[:VersionDigestBytes])}
}

// Versions returns the policies of the set, sorted by name, without those that have no good version
// and refuse what they match.
func (s *Set) Versions() []Version {
	versions := make([]Version, 0, len(s.members))
	for _, m := range s.members {
		if m.unusable == nil {
			versions = append(versions, m.version())
		}
	}
	return versions
}

// Version returns a policy of the set, and false if the set does not have a good version of it.
func (s *Set) Version(policy string) (Version, bool) {
	i, found := s.find(policy)
	if !found {
		return Version{}, false
	}
	return s.members[i].version(), true
}

// Requires reports whether an object that a policy matches is refused while the policy cannot be
// evaluated. Otherwise the policy is skipped.
func (s *Set) Requires(policy string) bool {
	i, found := s.find(policy)
	return found && s.members[i].isRequired()
}

func (s *Set) find(policy string) (int, bool) {
	i, found := slices.BinarySearchFunc(s.members, policy, func(m *member, name string) int {
		return strings.Compare(m.source.Name, name)
	})
	return i, found && s.members[i].unusable == nil
}

// Quarantines returns the quarantines that began in this process, by policy and project, without
// those that it adopted.
func (e *Engine) Quarantines() []Quarantine {
	set := e.current.Load()
	if set == nil {
		return nil
	}
	var all []Quarantine
	for _, m := range set.members {
		all = append(all, m.quarantine.list(m.version(), m.source.BuiltIn)...)
	}
	return all
}

// AdoptQuarantines applies the quarantines of other processes, in place of those that it applied
// before. It ignores those of policies that are not in force in that version, and none lasts longer
// than [QuarantinePeriod] from now.
func (e *Engine) AdoptQuarantines(quarantines []Quarantine) {
	set := e.current.Load()
	if set == nil {
		return
	}
	latest := policytime.MachineNow().Add(QuarantinePeriod)
	ends := map[Version]map[string]time.Time{}
	for _, q := range quarantines {
		byProject := ends[q.Version]
		if byProject == nil {
			byProject = map[string]time.Time{}
			ends[q.Version] = byProject
		}
		until := q.Until
		if until.After(latest) {
			until = latest
		}
		if until.After(byProject[q.Project]) {
			byProject[q.Project] = until
		}
	}
	for _, m := range set.members {
		m.quarantine.adopt(ends[m.version()])
	}
}

// QuarantinedPolicies returns the sorted names of the policies that are not evaluated for some
// project at least.
func (e *Engine) QuarantinedPolicies() []string {
	set := e.current.Load()
	if set == nil {
		return nil
	}
	var names []string
	for _, m := range set.members {
		if m.quarantine.isActive(m.version(), m.source.BuiltIn) {
			names = append(names, m.source.Name)
		}
	}
	return names
}

// isActive reports whether the policy is quarantined for some project.
func (q *quarantine) isActive(version Version, builtIn bool) bool {
	if len(q.list(version, builtIn)) > 0 {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.adopted) > 0
}
