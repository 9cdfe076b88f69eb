// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// profileForm is what a NodePool's status takes for a profile; a test holds it
// against the schema.
var profileForm = regexp.MustCompile(`^[1-8]g[.][0-9]{1,4}gb([+][a-z]+([.][a-z]+)?|-me)?$`)

// labelledProfiles are the profiles that the node's GPUs are cut into now, for
// GPU feature discovery tells of no others; and remarks on labels that are of
// its form and name no profile.
func labelledProfiles(node *corev1.Node) (profiles []v1alpha1.MIGProfile, remarks []string) {
	for key := range node.Labels {
		name, ok := strings.CutSuffix(key, ".count")
		if !ok {
			continue
		}
		// The labels name profiles as the resources do.
		profile, ok := v1alpha1.ProfileOfResource(corev1.ResourceName(name))
		if !ok {
			continue
		}
		if !profileForm.MatchString(string(profile)) {
			remarks = append(remarks, fmt.Sprintf("node %s: label %s names no profile of GPU instances", node.Name, key))
			continue
		}
		profiles = append(profiles, profile)
	}
	slices.Sort(profiles)
	slices.Sort(remarks)
	return profiles, remarks
}
