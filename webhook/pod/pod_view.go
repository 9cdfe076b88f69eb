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

// The API server gives each pod a volume with a token, and names it by chance:
// this and five letters, of which none is a zero. It does so before anybody is
// asked, so that without more no two pods of a controller were the same.
const (
	tokenVolumePrefix = "kube-api-access-"
	tokenSuffixLength = 5
	// canonicalTokenVolume is how that volume is called in all pods while they are judged.
	canonicalTokenVolume = tokenVolumePrefix + "00000"
)

// podView is a pod as it is judged: all pods of a controller have the same.
type podView struct {
	// raw is the pod's JSON, without the fields that nobody reads and with another
	// name for the volume of its token.
	raw []byte
	// tokenVolume is that volume's name; empty where the pod has none of its kind, or more
	// than one, or where the name stands anywhere else than in the volume and in what
	// mounts it: then it is left as it is.
	tokenVolume string
}

// newPodView is the view of a pod. What is judged is what an answer is remembered by:
// of two pods with the same view each has the answer of the other, but for the
// name that restore puts back.
func newPodView(pod []byte, seen fieldUsage) podView {
	text := string(pod)
	hidden := map[string]bool{
		// The API server notes there when the pod was written, and nobody reads it.
		"managedFields": true,
		"name":          !seen.name, "uid": !seen.uid, "creationTimestamp": !seen.creationTimestamp,
	}
	var (
		rest            strings.Builder
		from            int
		volumes, mounts []gjson.Result
	)
	rest.Grow(len(text))
	gjson.Parse(text).ForEach(func(key, part gjson.Result) bool {
		switch key.Str {
		case "metadata":
			part.ForEach(func(key, field gjson.Result) bool {
				if part.IsObject() && hidden[key.Str] {
					rest.WriteString(text[from:field.Index])
					rest.WriteString("null")
					from = field.Index + len(field.Raw)
				}
				return true
			})
		case "spec":
			volumes, mounts = volumeAndMountNames(part)
		}
		return true
	})
	rest.WriteString(text[from:])
	text = rest.String()
	token := findTokenVolume(text, volumes, mounts)
	if token != "" {
		text = strings.ReplaceAll(text, token, canonicalTokenVolume)
	}
	return podView{raw: []byte(text), tokenVolume: token}
}

// volumeAndMountNames are the names of a pod's volumes, and those in its containers' mounts.
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

// findTokenVolume is the name of the volume with the token in a pod; empty where it cannot
// be given another without changing anything else.
func findTokenVolume(pod string, volumes, mounts []gjson.Result) string {
	volumes = slices.DeleteFunc(volumes, func(name gjson.Result) bool {
		letters, ok := strings.CutPrefix(name.Str, tokenVolumePrefix)
		return !ok || len(letters) != tokenSuffixLength || strings.Trim(letters, "abcdefghijklmnopqrstuvwxyz123456789") != ""
	})
	if len(volumes) != 1 || strings.Contains(pod, canonicalTokenVolume) {
		return ""
	}
	// As it is written: an escaped letter would be another's.
	places := 0
	for _, name := range append(mounts, volumes[0]) {
		if name.Raw == volumes[0].Raw {
			places++
		}
	}
	token := volumes[0].Str
	if strings.Count(pod, token) != places {
		return ""
	}
	return token
}

// restore is a response to a view as the response to its pod.
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
