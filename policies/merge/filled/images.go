// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package filled

import (
	"github.com/distribution/reference"

	"sluice.dev/policies/merge/value"
)

// pullPolicy is the rule for an image that the field beside it names: Always for
// the tag latest, which an image has that says neither tag nor digest.
func pullPolicy(field string) rule {
	return func(_ Cluster, at Place, v any) bool {
		want := "IfNotPresent"
		if latest(value.Text(at.Parent[field])) {
			want = "Always"
		}
		return value.Text(v) == want
	}
}

// latest reads as the API server does: what is no image's name has no tag.
func latest(image string) bool {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return false
	}
	if tagged, ok := named.(reference.Tagged); ok {
		return tagged.Tag() == "latest"
	}
	_, digested := named.(reference.Digested)
	return !digested
}
