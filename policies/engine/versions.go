// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/hex"
	"slices"
	"strings"
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

func (p *policy) version() Version {
	return Version{Policy: p.source.Name, Generation: p.source.Generation, Digest: hex.EncodeToString(p.digest[:VersionDigestBytes])}
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
