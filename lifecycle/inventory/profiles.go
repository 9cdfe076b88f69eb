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
		name, ok := strings.CutPrefix(key, string(v1alpha1.ResourceNVIDIAMIGPrefix))
		if !ok {
			continue
		}
		if name, ok = strings.CutSuffix(name, ".count"); !ok {
			continue
		}
		profile := profileOf(name)
		if !profileForm.MatchString(profile) {
			remarks = append(remarks, fmt.Sprintf("node %s: label %s names no profile of GPU instances", node.Name, key))
			continue
		}
		profiles = append(profiles, v1alpha1.MIGProfile(profile))
	}
	slices.Sort(profiles)
	slices.Sort(remarks)
	return profiles, remarks
}

// profileOf is the profile behind a resource's or a label's name, where the +
// before an attribute is written as a dot: 1g.5gb.me is 1g.5gb+me.
func profileOf(name string) string {
	if at := strings.Index(name, "gb."); at >= 0 {
		return name[:at+2] + "+" + name[at+3:]
	}
	return name
}
