// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/v1alpha1"
)

// HowStopped says in a few words of Markdown what stops the kind.
func (k Kind) HowStopped() string {
	path := strings.Join(k.Verb.Path, ".")
	annotation, isAnnotation := strings.CutPrefix(path, annotations)
	switch {
	case k.Verb.Form == FormDelete:
		return "is deleted"
	case k.Verb.Form == FormNever:
		return "is never stopped"
	case k.Verb.Form == FormReplicas:
		return "`" + path + ": 0`"
	case k.Verb.Form == FormMark:
		return "annotation `" + annotation + "`"
	case isAnnotation:
		return fmt.Sprintf("annotation `%s: %q`", annotation, k.Verb.Stop)
	}
	return fmt.Sprintf("`%s: %v`", path, k.Verb.Stop)
}

const annotations = "metadata.annotations."

// StartCommand is the command by which its owner starts a stopped workload again;
// empty where nothing does: then it is made anew. Replicas are for kinds that
// have some; 1 is taken for less.
func (k Kind) StartCommand(namespace, name string, replicas int64) string {
	if k.Verb.Final || k.Verb.Form == FormNever || k.Verb.Form == FormDelete || k.Verb.Form == "" {
		return ""
	}
	object := k.Resource
	if k.Group != "" {
		object += "." + k.Group
	}
	where := fmt.Sprintf("%s/%s -n %s", object, name, namespace)
	annotation, isAnnotation := strings.CutPrefix(strings.Join(k.Verb.Path, "."), annotations)
	switch {
	case k.Verb.Form == FormReplicas && strings.Join(k.Verb.Path, ".") == "spec.replicas":
		return fmt.Sprintf("kubectl scale %s --replicas=%d", where, max(replicas, 1))
	case isAnnotation && k.Verb.Start == nil:
		return fmt.Sprintf("kubectl annotate %s %s-", where, annotation)
	}
	start := k.Verb.Start
	if k.Verb.Form == FormReplicas {
		start = max(replicas, 1)
	}
	patch := start
	for i := len(k.Verb.Path) - 1; i >= 0; i-- {
		patch = map[string]any{k.Verb.Path[i]: patch}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return "" // the values of the table are bools, strings and numbers
	}
	return fmt.Sprintf("kubectl patch %s --type=merge -p '%s'", where, raw)
}

// ReplicasBefore is how many replicas a workload had when Sluice scaled it to
// nothing, and 1 where that is not known. It is for people: its owner can change
// what stands there.
func ReplicasBefore(object *unstructured.Unstructured) int64 {
	n, err := strconv.ParseInt(object.GetAnnotations()[v1alpha1.AnnotationReplicasBefore], 10, 64)
	if err != nil || n < 1 || n > math.MaxInt32 {
		return 1
	}
	return n
}
