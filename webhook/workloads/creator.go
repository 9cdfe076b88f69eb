// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloads

import (
	"fmt"
	"maps"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload/kinds"
	"sluice.dev/policies/intent"
	"sluice.dev/policies/merge/value"
)

// own is where an object says who made it.
var own = []string{"metadata", "annotations", v1alpha1.AnnotationCreatedBy}

// handedOn is where an object says who is to have made what comes of it: a
// controller copies a template's annotations.
var handedOn = [][]string{
	{"spec", "template", "metadata", "annotations", v1alpha1.AnnotationCreatedBy},
	{"spec", "jobTemplate", "metadata", "annotations", v1alpha1.AnnotationCreatedBy},
	{"spec", "jobTemplate", "spec", "template", "metadata", "annotations", v1alpha1.AnnotationCreatedBy},
}

// signed is the object with the user as its maker, and what its author said
// otherwise. Whatever stood there is overwritten, in the templates too, but what a
// faithful controller hands on from the object that it made this of.
func signed(object map[string]any, user string) (map[string]any, []intent.Complaint) {
	_, controlled := kinds.Controller(object)
	handsOn := faithful[user] && controlled
	after, warnings := object, []intent.Complaint(nil)
	for _, path := range append([][]string{own}, handedOn...) {
		said, there := at(object, path)
		_, isText := said.(string)
		switch {
		case said == user, there && isText && handsOn, !there && len(path) > len(own):
			continue
		}
		with, ok := put(after, path, user)
		if !ok {
			continue // the API server will say what is wrong there
		}
		after = with
		if there {
			warnings = append(warnings, intent.Complaint{
				Field:   strings.Join(path[:len(path)-1], ".") + "[" + path[len(path)-1] + "]",
				Message: fmt.Sprintf("says who makes this, and that is %s; what stood there was replaced", user),
			})
		}
	}
	return after, warnings
}

// faithful are those of Kubernetes' own controllers that make workloads of others:
// ReplicaSets and Jobs. They hand on what stands on the Deployment or CronJob, where
// nobody but its maker can stand.
var faithful = map[string]bool{
	"system:kube-controller-manager":                          true, // all of them, where they share an identity
	"system:serviceaccount:kube-system:cronjob-controller":    true,
	"system:serviceaccount:kube-system:deployment-controller": true,
}

// at is what stands at a path, and whether anything does.
func at(object map[string]any, path []string) (any, bool) {
	for _, step := range path[:len(path)-1] {
		object = value.Map(object[step])
	}
	found, ok := object[path[len(path)-1]]
	return found, ok
}

// put is a copy of the object with the text at a path, which shares with it all
// else. It is false where something on the way is no object.
func put(object map[string]any, path []string, text string) (map[string]any, bool) {
	with := maps.Clone(object)
	if with == nil {
		with = make(map[string]any)
	}
	if len(path) == 1 {
		with[path[0]] = text
		return with, true
	}
	below := value.Map(object[path[0]])
	if below == nil && object[path[0]] != nil {
		return nil, false
	}
	made, ok := put(below, path[1:], text)
	with[path[0]] = made
	return with, ok
}
