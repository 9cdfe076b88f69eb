// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package departments

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/access"
)

// own are the fields of a department's spec that its own administrators write:
// its people, and how they are told. What a department is given, and what its
// projects must keep, is for those who administer all; so is every field that is
// not here.
var own = []string{"contacts", "displayName", "members", "notices"}

// NotOwn tells which fields of the change are not for the department's own
// administrators.
func NotOwn(before, after *v1alpha1.Department) (field.ErrorList, error) {
	changed, err := access.Changed(before, after)
	if err != nil {
		return nil, err
	}
	var errs field.ErrorList
	for _, change := range changed {
		if name, isSpec := strings.CutPrefix(change.Path, "spec."); !isSpec || !slices.Contains(own, name) {
			errs = append(errs, field.Forbidden(field.NewPath(change.Path), fmt.Sprintf(
				"only system administrators change it; the department's own change spec.%s", strings.Join(own, ", spec."))))
		}
	}
	return errs, nil
}
