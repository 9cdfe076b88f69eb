// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// mostProfile is how long the name of a profile may be.
const mostProfile = 24

// wrongSlice says what is wrong with a resource that is named like a MIG slice;
// empty for one that could be a profile of some board.
func wrongSlice(name corev1.ResourceName) string {
	profile, _ := v1alpha1.ProfileOfResource(name)
	text := string(profile)
	if refusal := computeInstance(text); refusal != "" {
		return refusal
	}
	if slice, shared := strings.CutSuffix(text, "+shared"); shared {
		return "is a replica of a MIG slice, which is not offered; ask for the slice, " + string(v1alpha1.ResourceMIG(v1alpha1.MIGProfile(slice)))
	}
	if !isProfile(text) || v1alpha1.ResourceMIG(profile) != name { // a plus is no part of a resource's name
		return "is not a MIG profile; one looks like nvidia.com/mig-3g.40gb, nvidia.com/mig-1g.10gb.me or nvidia.com/mig-1g.24gb-me"
	}
	return ""
}

// computeInstance is the refusal of a compute instance inside a GPU instance
// (1c.3g.20gb), empty for any other text.
func computeInstance(text string) string {
	count, instance, ok := strings.Cut(text, "c.")
	if !ok || count == "" || !isProfile(instance) {
		return ""
	}
	if _, ok := wholeNumber(count, mostDevices); !ok {
		return ""
	}
	return text + " is a compute instance inside the GPU instance " + instance +
		"; compute instances are not offered, ask for " + string(v1alpha1.ResourceMIG(v1alpha1.MIGProfile(instance)))
}

// isProfile reports whether text has the form of a GPU instance profile, that of
// the schema of [v1alpha1.MIGProfile]: 3g.40gb, 1g.10gb+me, 1g.24gb+me.all,
// 1g.24gb-me.
func isProfile(text string) bool {
	if len(text) > mostProfile || len(text) < 2 || text[0] < '1' || text[0] > '8' || text[1] != 'g' {
		return false
	}
	memory, ok := strings.CutPrefix(text[2:], ".")
	if !ok {
		return false
	}
	digits := 0
	for digits < len(memory) && isDigit(memory[digits]) {
		digits++
	}
	attribute, ok := strings.CutPrefix(memory[digits:], "gb")
	if !ok || digits < 1 || digits > 4 {
		return false
	}
	if attribute == "" || attribute == "-me" {
		return true
	}
	attribute, ok = strings.CutPrefix(attribute, "+")
	first, second, two := strings.Cut(attribute, ".")
	return ok && isLetters(first) && (!two || isLetters(second))
}

func isLetters(text string) bool {
	for at := range len(text) {
		if text[at] < 'a' || text[at] > 'z' {
			return false
		}
	}
	return text != ""
}
