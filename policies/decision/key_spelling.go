// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"maps"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/schema"
)

// sluiceDomain is the domain of all keys of Sluice.
const sluiceDomain = "sluice.dev/"

// knownKey is a key that the author of a pod may set.
type knownKey struct {
	isLabel bool
	// requestsGPU reports whether a pod without the key would lack the GPU that its author requests.
	requestsGPU bool
}

// authorKeys are the labels and annotations that the author of a pod may set, by key.
var authorKeys = map[string]knownKey{
	v1alpha1.AnnotationGPU:                  {requestsGPU: true},
	v1alpha1.AnnotationGPUFraction:          {requestsGPU: true},
	v1alpha1.AnnotationGPUMemory:            {requestsGPU: true},
	v1alpha1.AnnotationGPUMemoryLimitKAI:    {},
	v1alpha1.AnnotationGPUFractionLimitKAI:  {},
	v1alpha1.AnnotationGPUFractionDevices:   {},
	v1alpha1.AnnotationGPUFractionContainer: {},
	v1alpha1.AnnotationGPUMemoryLimit:       {},
	v1alpha1.AnnotationNodePools:            {},
	v1alpha1.AnnotationMaxRuntime:           {},
	v1alpha1.LabelWorkloadType:              {isLabel: true},
}

// authorKeyNames are the keys in the order in which near misses are compared.
var authorKeyNames = slices.Sorted(maps.Keys(authorKeys))

// authorSluiceKeys are those in Sluice's domain.
var authorSluiceKeys = slices.DeleteFunc(slices.Clone(authorKeyNames), func(key string) bool { return !strings.HasPrefix(key, sluiceDomain) })

// sluiceKeys are all keys of Sluice. Those that Sluice writes are on templates of copied pods, and are no mistakes.
var sluiceKeys = func() map[string]bool {
	keys := map[string]bool{}
	for _, key := range v1alpha1.ManagedKeys() {
		keys[key] = true
	}
	return keys
}()

// CheckKeys returns what the author of a pod probably misspelled among its labels and annotations. A misspelled
// request of a GPU denies a pod that has none otherwise: it would run without the GPU.
func CheckKeys(object map[string]any, requested *workload.Request, schedulers engine.Schedulers) (denials, warnings []merge.Finding) {
	metadata := schema.AsMap(object["metadata"])
	for _, isLabel := range []bool{true, false} {
		field := kindOfKey(isLabel) + "s"
		for _, key := range slices.Sorted(maps.Keys(schema.AsMap(metadata[field]))) {
			finding, meant := checkKey(key, isLabel, schedulers)
			if finding.Message == "" {
				continue
			}
			finding.Field = "metadata." + field + "[" + v1alpha1.TruncateText(key, maxSubjectBytes) + "]"
			if authorKeys[meant].requestsGPU && requested.Form == workload.FormNone {
				denials = append(denials, finding)
			} else {
				warnings = append(warnings, finding)
			}
		}
	}
	return denials, warnings
}

// checkKey returns a finding without a field if a key is probably a mistake, and the key that is meant, if there is one.
func checkKey(key string, isLabel bool, schedulers engine.Schedulers) (finding merge.Finding, meant string) {
	if known, exact := authorKeys[key]; exact {
		if known.isLabel == isLabel {
			return merge.Finding{}, ""
		}
		return merge.Finding{
			Message: "is no " + kindOfKey(isLabel) + " but " + indefinite[known.isLabel] + ", and has no effect",
			Fix:     "set it as " + indefinite[known.isLabel],
		}, key
	}
	if sluiceKeys[key] {
		return merge.Finding{}, ""
	}
	if meant = similarKey(key); meant != "" {
		return merge.Finding{
			Message: "has no meaning to Sluice",
			Fix:     "did you mean the " + kindOfKey(authorKeys[meant].isLabel) + " " + meant + "?",
		}, meant
	}
	return foreignKey(key, schedulers), ""
}

func kindOfKey(isLabel bool) string {
	if isLabel {
		return "label"
	}
	return "annotation"
}

// indefinite has the kinds with their article, by whether it is a label.
var indefinite = map[bool]string{true: "a label", false: "an annotation"}

// foreignKey returns a finding on an unknown key of Sluice, and on keys of Run:ai and Kueue in projects without them.
func foreignKey(key string, schedulers engine.Schedulers) merge.Finding {
	domain, _, _ := strings.Cut(key, "/")
	switch {
	case strings.HasPrefix(key, sluiceDomain):
		return merge.Finding{
			Message: "is no label or annotation of Sluice, and has no effect",
			Fix:     "authors of pods may set " + strings.Join(authorSluiceKeys, ", "),
		}
	case (domain == "run.ai" || domain == "runai" || strings.HasSuffix(domain, ".run.ai")) && strings.Contains(key, "/") &&
		!schedulers.Has(v1alpha1.SchedulerKAI):
		return merge.Finding{
			Message: "is a key of Run:ai, which has no effect in this project",
			Fix: "the namespace names the project; see " + v1alpha1.LabelWorkloadType + ", " + v1alpha1.AnnotationNodePools + " and " +
				v1alpha1.AnnotationGPUFraction,
		}
	case domain == "kueue.x-k8s.io" && !schedulers.Has(v1alpha1.SchedulerKueue):
		return merge.Finding{
			Message: "is a key of Kueue, which serves no node pool of this project, and has no effect",
			Fix:     "remove it: the project's quota needs no queue",
		}
	}
	return merge.Finding{}
}

// The limits of near misses. A shorter key is too similar to many others.
const (
	minSimilarLength = 8
	maxEdits         = 2
)

// similarKey returns the key that the author probably means, or "". The domain may be missing or misspelled too.
func similarKey(key string) string {
	if len(key) < minSimilarLength || len(key) > 64 {
		return ""
	}
	best, fewest := "", maxEdits+1
	for _, known := range authorKeyNames {
		candidates := []string{known}
		// Without its domain a key must be complete: sluice.dev/gpu is not meant by any word like gpu.
		if name, ours := strings.CutPrefix(known, sluiceDomain); ours && len(name) >= minSimilarLength && !strings.Contains(key, "/") {
			candidates = append(candidates, name)
		}
		for _, candidate := range candidates {
			if edits := engine.EditDistance(key, candidate, maxEdits); edits < fewest {
				best, fewest = known, edits
			}
		}
	}
	if best == v1alpha1.AnnotationGPU && !strings.HasSuffix(key, "/gpu") && fewest > 1 {
		return "" // sluice.dev/gpu is short: sluice.dev/cpu is another word
	}
	return best
}
