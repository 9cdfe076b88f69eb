// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

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
	tokenVolume  = "kube-api-access-"
	tokenLetters = 5
	// tokenName is how that volume is called in all pods while they are judged.
	tokenName = tokenVolume + "00000"
)

// view is a pod as it is judged: all pods of a controller have the same.
type view struct {
	// raw is the pod's JSON, without the fields that nobody reads and with another
	// name for the volume of its token.
	raw []byte
	// token is that volume's name; empty where the pod has none of its kind, or more
	// than one, or where the name stands anywhere else than in the volume and in what
	// mounts it: then it is left as it is.
	token string
}

// viewOf is the view of a pod. What is judged is what an answer is remembered by:
// of two pods with the same view each has the answer of the other, but for the
// name that restore puts back.
func viewOf(pod []byte, seen reading) view {
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
			volumes, mounts = named(part)
		}
		return true
	})
	rest.WriteString(text[from:])
	text = rest.String()
	token := tokenOf(text, volumes, mounts)
	if token != "" {
		text = strings.ReplaceAll(text, token, tokenName)
	}
	return view{raw: []byte(text), token: token}
}

// named are the names of a pod's volumes, and those in its containers' mounts.
func named(spec gjson.Result) (volumes, mounts []gjson.Result) {
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

// tokenOf is the name of the volume with the token in a pod; empty where it cannot
// be given another without changing anything else.
func tokenOf(pod string, volumes, mounts []gjson.Result) string {
	volumes = slices.DeleteFunc(volumes, func(name gjson.Result) bool {
		letters, ok := strings.CutPrefix(name.Str, tokenVolume)
		return !ok || len(letters) != tokenLetters || strings.Trim(letters, "abcdefghijklmnopqrstuvwxyz123456789") != ""
	})
	if len(volumes) != 1 || strings.Contains(pod, tokenName) {
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
func (v *view) restore(response admission.Response) admission.Response {
	if v.token == "" {
		return response
	}
	response.Patch = bytes.ReplaceAll(response.Patch, []byte(tokenName), []byte(v.token))
	if len(response.Patch) == 0 {
		response.Patch = nil
	}
	response.Warnings = slices.Clone(response.Warnings)
	for i, warning := range response.Warnings {
		response.Warnings[i] = strings.ReplaceAll(warning, tokenName, v.token)
	}
	if response.Result != nil {
		result := *response.Result
		result.Message = strings.ReplaceAll(result.Message, tokenName, v.token)
		response.Result = &result
	}
	return response
}
