// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// The API server adds a token volume to each pod before it calls the webhook. The volume's name is this prefix and
// five random characters, never a zero, so that no two pods of a controller are equal.
const (
	tokenVolumePrefix = "kube-api-access-"
	tokenSuffixLength = 5
	// canonicalTokenVolume is the volume's name in all views.
	canonicalTokenVolume = tokenVolumePrefix + "00000"
)

// podView is a pod as the policies see it. All pods of a controller have the same view.
type podView struct {
	// raw is the pod's JSON without the fields that no policy reads, and with the canonical token volume.
	raw []byte
	// tokenVolume is the token volume's own name. It is empty if the view keeps the name: if the pod has no such
	// volume or several, or if the name occurs outside the volume and its mounts.
	tokenVolume string
}

// newPodView returns the view of a pod. Two pods with the same view have the same response, except for the volume
// name that restore puts back.
func newPodView(pod []byte, reads fieldReads) podView {
	text := string(pod)
	hidden := map[string]bool{
		// managedFields has the time of the write, and no policy reads it.
		"managedFields": true,
		"name":          !reads.name, "uid": !reads.uid, "creationTimestamp": !reads.creationTimestamp,
	}
	var (
		masked          strings.Builder
		copied          int
		volumes, mounts []gjson.Result
	)
	masked.Grow(len(text))
	gjson.Parse(text).ForEach(func(key, section gjson.Result) bool {
		switch key.Str {
		case "metadata":
			section.ForEach(func(key, field gjson.Result) bool {
				if section.IsObject() && hidden[key.Str] {
					masked.WriteString(text[copied:field.Index])
					masked.WriteString("null")
					copied = field.Index + len(field.Raw)
				}
				return true
			})
		case "spec":
			volumes, mounts = volumeAndMountNames(section)
		}
		return true
	})
	masked.WriteString(text[copied:])
	text = masked.String()
	token := findTokenVolume(text, volumes, mounts)
	if token != "" {
		text = strings.ReplaceAll(text, token, canonicalTokenVolume)
	}
	return podView{raw: []byte(text), tokenVolume: token}
}

// volumeAndMountNames returns the names of a pod's volumes, and the names in its containers' mounts.
func volumeAndMountNames(spec gjson.Result) (volumes, mounts []gjson.Result) {
	spec.ForEach(func(key, list gjson.Result) bool {
		switch key.Str {
		case "volumes":
			volumes = append(volumes, list.Get("#.name").Array()...)
		case "initContainers", "containers":
			list.ForEach(func(_, container gjson.Result) bool {
				mounts = append(mounts, container.Get("volumeMounts.#.name").Array()...)
				return true
			})
		}
		return true
	})
	return volumes, mounts
}

// findTokenVolume returns the name of a pod's token volume; "" if replacing it would change anything else.
func findTokenVolume(pod string, volumes, mounts []gjson.Result) string {
	volumes = slices.DeleteFunc(volumes, func(name gjson.Result) bool {
		suffix, ok := strings.CutPrefix(name.Str, tokenVolumePrefix)
		return !ok || len(suffix) != tokenSuffixLength || strings.Trim(suffix, "abcdefghijklmnopqrstuvwxyz123456789") != ""
	})
	if len(volumes) != 1 || strings.Contains(pod, canonicalTokenVolume) {
		return ""
	}
	// The raw text is compared: an escaped name would not be replaced.
	occurrences := 0
	for _, name := range append(mounts, volumes[0]) {
		if name.Raw == volumes[0].Raw {
			occurrences++
		}
	}
	token := volumes[0].Str
	if strings.Count(pod, token) != occurrences {
		return ""
	}
	return token
}

// restore returns the response for the pod from the response for its view.
func (v *podView) restore(response admission.Response) admission.Response {
	if v.tokenVolume == "" {
		return response
	}
	response.Patch = bytes.ReplaceAll(response.Patch, []byte(canonicalTokenVolume), []byte(v.tokenVolume))
	if len(response.Patch) == 0 {
		response.Patch = nil
	}
	response.Warnings = slices.Clone(response.Warnings)
	for i, warning := range response.Warnings {
		response.Warnings[i] = strings.ReplaceAll(warning, canonicalTokenVolume, v.tokenVolume)
	}
	if response.Result != nil {
		result := *response.Result
		result.Message = strings.ReplaceAll(result.Message, canonicalTokenVolume, v.tokenVolume)
		response.Result = &result
	}
	return response
}
