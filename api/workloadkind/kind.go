// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
)

// StopMethod is how a verb stops a workload.
type StopMethod string

// The forms of verbs.
const (
	// StopByField: a field gets a value.
	StopByField StopMethod = "Field"
	// StopByAnnotation: an annotation is put on; its presence counts, not its value.
	StopByAnnotation StopMethod = "Mark"
	// StopByScaling: the number of replicas becomes 0.
	StopByScaling StopMethod = "Replicas"
	// StopByDeletion: the object is deleted, since nothing else stops it.
	StopByDeletion StopMethod = "Delete"
	// StopNever: the object is never touched.
	StopNever StopMethod = "Never"
)

// StopAction is what stops a workload. A change of one place in the object is enough,
// so that a mark of ours can be written with it in one patch.
type StopAction struct {
	Method StopMethod
	// Path of the field, the annotation or the number; none where Form is
	// FormDelete or FormNever.
	Path []string
	// StopValue is the value that stops; for FormField alone.
	StopValue any
	// StartValue is the value that starts again; nil takes the field out.
	StartValue any
	// Irreversible is true where what was stopped cannot be started again.
	Irreversible bool
}

// Completion says how an object tells that it has come to its end by itself.
type Completion struct {
	// Conditions are those of status.conditions of which one is True then.
	Conditions []string
	// ResultCondition is a condition that is True or False then, and Unknown before.
	ResultCondition string
	// PhasePath is the path of a word that is one of Phases then.
	PhasePath []string
	Phases    []string
}

// Kind is one row of the table.
type Kind struct {
	schema.GroupKind
	// Resource is the kind's plural in the API: jobs.
	Resource string
	// StopAction stops it.
	StopAction StopAction
	// Templates are the paths of its pod templates; none where it has none that
	// are pod templates. The word * stands for all elements of a list, or all
	// entries of an object; the empty path for the object itself.
	Templates [][]string
	// Completion is how it tells its end; zero for what runs on for ever.
	Completion Completion
	// ActivePodsPath is the path of the number of pods that it still has, which is 0 or
	// absent once it is stopped; none where it has no such number.
	ActivePodsPath []string
	// OrderedTermination is true where its controller takes its pods down one by one, and
	// waits for each before the next.
	OrderedTermination bool
	// KueueManaged is true where Kueue may hold it by a Workload of its own, and would
	// start again what was only suspended.
	KueueManaged bool
	// KueueCountsTemplates is true where Kueue counts its pod templates before there are
	// pods: what these are charged must stand in the templates.
	KueueCountsTemplates bool
}

// Lookup is the row of a kind; false where the table has none.
func Lookup(kind schema.GroupKind) (Kind, bool) {
	k, ok := byKind[kind]
	return k, ok
}

// All is the table, in its order.
func All() []Kind { return slices.Clone(kindTable) }

var byKind = func() map[schema.GroupKind]Kind {
	rows := make(map[schema.GroupKind]Kind, len(kindTable))
	for _, k := range kindTable {
		rows[k.GroupKind] = k
	}
	return rows
}()

// DescribeStop says in a few words of Markdown what stops the kind.
func (k Kind) DescribeStop() string {
	path := strings.Join(k.StopAction.Path, ".")
	annotation, isAnnotation := strings.CutPrefix(path, annotationsPrefix)
	switch {
	case k.StopAction.Method == StopByDeletion:
		return "is deleted"
	case k.StopAction.Method == StopNever:
		return "is never stopped"
	case k.StopAction.Method == StopByScaling:
		return "`" + path + ": 0`"
	case k.StopAction.Method == StopByAnnotation:
		return "annotation `" + annotation + "`"
	case isAnnotation:
		return fmt.Sprintf("annotation `%s: %q`", annotation, k.StopAction.StopValue)
	}
	return fmt.Sprintf("`%s: %v`", path, k.StopAction.StopValue)
}

const annotationsPrefix = "metadata.annotations."

// StartCommand is the command by which its owner starts a stopped workload again;
// empty where nothing does: then it is made anew. Replicas are for kinds that
// have some; 1 is taken for less.
func (k Kind) StartCommand(namespace, name string, replicas int64) string {
	if k.StopAction.Irreversible || k.StopAction.Method == StopNever || k.StopAction.Method == StopByDeletion || k.StopAction.Method == "" {
		return ""
	}
	object := k.Resource
	if k.Group != "" {
		object += "." + k.Group
	}
	where := fmt.Sprintf("%s/%s -n %s", object, name, namespace)
	annotation, isAnnotation := strings.CutPrefix(strings.Join(k.StopAction.Path, "."), annotationsPrefix)
	switch {
	case k.StopAction.Method == StopByScaling && strings.Join(k.StopAction.Path, ".") == "spec.replicas":
		return fmt.Sprintf("kubectl scale %s --replicas=%d", where, max(replicas, 1))
	case isAnnotation && k.StopAction.StartValue == nil:
		return fmt.Sprintf("kubectl annotate %s %s-", where, annotation)
	}
	start := k.StopAction.StartValue
	if k.StopAction.Method == StopByScaling {
		start = max(replicas, 1)
	}
	patch := start
	for i := len(k.StopAction.Path) - 1; i >= 0; i-- {
		patch = map[string]any{k.StopAction.Path[i]: patch}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return "" // the values of the table are bools, strings and numbers
	}
	return fmt.Sprintf("kubectl patch %s --type=merge -p '%s'", where, raw)
}

// PreviousReplicas is how many replicas a workload had when Sluice scaled it to
// nothing, and 1 where that is not known. It is for people: its owner can change
// what stands there.
func PreviousReplicas(object *unstructured.Unstructured) int64 {
	n, err := strconv.ParseInt(object.GetAnnotations()[v1alpha1.AnnotationReplicasBefore], 10, 64)
	if err != nil || n < 1 || n > math.MaxInt32 {
		return 1
	}
	return n
}

// untilDecisionTime is what the annotation says where nobody may start the workload
// before somebody decided: a time, for those who read times.
const untilDecisionTime = "9999-12-31T23:59:59Z"

// FormatStoppedUntil is the value of the annotation sluice.dev/stopped-until for a time
// in policy time; the zero time means until somebody decides.
func FormatStoppedUntil(until time.Time) string {
	if until.IsZero() {
		return untilDecisionTime
	}
	return until.UTC().Format(time.RFC3339)
}

// ParseStoppedUntil reads the annotation: whether Sluice stopped the object, and until
// when (policy time, to the second). The zero time means until somebody decides;
// so does a value that cannot be read, since a door that opens by itself is none.
func ParseStoppedUntil(object *unstructured.Unstructured) (until time.Time, stopped bool) {
	value, stopped := object.GetAnnotations()[v1alpha1.AnnotationStoppedUntil]
	if !stopped || value == untilDecisionTime {
		return time.Time{}, stopped
	}
	until, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}, true
	}
	return until, true
}
