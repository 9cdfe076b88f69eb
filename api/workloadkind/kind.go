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

// StopMethod is the way in which a workload is stopped.
type StopMethod string

// The methods.
const (
	// StopByField sets a field to a value.
	StopByField StopMethod = "Field"
	// StopByAnnotation adds an annotation. Its presence counts, not its value.
	StopByAnnotation StopMethod = "Mark"
	// StopByScaling sets the number of replicas to 0.
	StopByScaling StopMethod = "Replicas"
	// StopByDeletion deletes the object, because it cannot be stopped otherwise.
	StopByDeletion StopMethod = "Delete"
	// StopNever never changes the object.
	StopNever StopMethod = "Never"
)

// StopAction stops a workload. It changes one place in the object, so that Sluice can write its
// own annotation in the same patch.
type StopAction struct {
	Method StopMethod
	// Path is the path of the field, the annotation or the number. It is empty for
	// StopByDeletion and StopNever.
	Path []string
	// StopValue is the value that stops, for StopByField only.
	StopValue any
	// StartValue is the value that starts the workload again; nil removes the field.
	StartValue any
	// Irreversible is true if a stopped workload cannot be started again.
	Irreversible bool
}

// Completion describes how an object reports that it has finished by itself.
type Completion struct {
	// Conditions are types of status.conditions of which one is then True.
	Conditions []string
	// ResultCondition is a condition that is then True or False, and Unknown before.
	ResultCondition string
	// PhasePath is the path of a phase that is then one of Phases.
	PhasePath []string
	Phases    []string
}

// Kind is one row of the table.
type Kind struct {
	schema.GroupKind
	// Resource is the kind's plural in the API, such as jobs.
	Resource string
	// StopAction stops a workload of the kind.
	StopAction StopAction
	// Templates are the paths of the pod templates. The segment * stands for all elements of
	// a list or all entries of an object, and the empty path for the object itself.
	Templates [][]string
	// Completion describes how the kind reports its end. It is zero for kinds that run until
	// they are stopped.
	Completion Completion
	// ActivePodsPath is the path of the number of remaining pods, which is 0 or absent after
	// a stop. It is empty if the kind has no such number.
	ActivePodsPath []string
	// ScaledVolumesPath is the path of the field with which a kind that is scaled deletes the volume
	// claims of the pods that end: the value VolumesDeleted. It is empty if the kind deletes none.
	ScaledVolumesPath []string
	// OrderedTermination is true if the controller deletes the pods one after the other.
	OrderedTermination bool
	// KueueManaged is true if Kueue may manage the kind through a Workload. Kueue would
	// resume an object that was only suspended.
	KueueManaged bool
	// KueueCountsTemplates is true if Kueue counts the pod templates before pods exist. The
	// GPU quota must then be in the templates.
	KueueCountsTemplates bool
}

// The values of the field at Kind.ScaledVolumesPath.
const (
	VolumesDeleted  = "Delete"
	VolumesRetained = "Retain"
)

// DeletesScaledVolumes reports whether an object of the kind deletes volume claims when it is scaled to 0.
func (k Kind) DeletesScaledVolumes(object *unstructured.Unstructured) bool {
	value, _ := valueAt(object.Object, k.ScaledVolumesPath)
	return len(k.ScaledVolumesPath) > 0 && value == VolumesDeleted
}

// Lookup returns the row of a kind, and false if the table has none.
func Lookup(kind schema.GroupKind) (Kind, bool) {
	k, ok := byKind[kind]
	return k, ok
}

// All returns the table in its order.
func All() []Kind { return slices.Clone(kindTable) }

var byKind = func() map[schema.GroupKind]Kind {
	rows := make(map[schema.GroupKind]Kind, len(kindTable))
	for _, k := range kindTable {
		rows[k.GroupKind] = k
	}
	return rows
}()

// ForObject returns the row for an object of the kind. A Job of a CronJob is not suspended but
// fails: the CronJob counts a suspended Job as active, and with the concurrency policy Forbid it
// would never start another. Kueue does not resume a failed Job.
func (k Kind) ForObject(object *unstructured.Unstructured) Kind {
	if owner, controlled := ControllerOf(object.Object); controlled && owner == cronJobKind && k.GroupKind == jobKind {
		k.StopAction, k.KueueManaged = failAction, false
	}
	return k
}

// DescribeStop describes in Markdown how the kind is stopped.
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

// StartCommand returns the command that starts a stopped workload again. It is empty if the
// workload must be created again. replicas is used for kinds with replicas; values below 1 mean
// 1.
func (k Kind) StartCommand(namespace, name string, replicas int64) string {
	if !k.IsReversible() {
		return ""
	}
	object := k.Resource
	if k.Group != "" {
		object += "." + k.Group
	}
	target := fmt.Sprintf("%s/%s -n %s", object, name, namespace)
	annotation, isAnnotation := strings.CutPrefix(strings.Join(k.StopAction.Path, "."), annotationsPrefix)
	switch {
	case k.StopAction.Method == StopByScaling && strings.Join(k.StopAction.Path, ".") == "spec.replicas":
		return fmt.Sprintf("kubectl scale %s --replicas=%d", target, max(replicas, 1))
	case isAnnotation && k.StopAction.StartValue == nil:
		return fmt.Sprintf("kubectl annotate %s %s-", target, annotation)
	}
	patch := map[string]any{}
	SetPatchValue(patch, k.startValue(replicas), k.StopAction.Path...)
	raw, err := json.Marshal(patch)
	if err != nil {
		return "" // cannot happen: the values are bools, strings and numbers
	}
	return fmt.Sprintf("kubectl patch %s --type=merge -p '%s'", target, raw)
}

// StartCommandOf returns the command that starts a stopped object again, with its former number of
// replicas; empty if it must be created again. Kueue starts a workload of its queues once the Workload
// of the object is active.
func StartCommandOf(object *unstructured.Unstructured) string {
	kind, _ := Lookup(object.GroupVersionKind().GroupKind())
	kind = kind.ForObject(object)
	if queued := byKind[kueueWorkloadKind]; kind.KueueManaged && object.GetLabels()[v1alpha1.LabelKueueQueue] != "" {
		return fmt.Sprintf(`kubectl get %s.%s -n %s -l %s=%s -o name | xargs kubectl patch -n %s --type=merge -p '{"spec":{"active":true}}'`,
			queued.Resource, queued.Group, object.GetNamespace(), LabelKueueJobUID, object.GetUID(), object.GetNamespace())
	}
	return kind.StartCommand(object.GetNamespace(), object.GetName(), PreviousReplicas(object))
}

// PreviousReplicas returns the number of replicas before Sluice scaled the workload to zero, or 1
// if it is unknown. It is for display only, since the owner can change the annotation.
func PreviousReplicas(object *unstructured.Unstructured) int64 {
	n, err := strconv.ParseInt(object.GetAnnotations()[v1alpha1.AnnotationReplicasBefore], 10, 64)
	if err != nil || n < 1 || n > math.MaxInt32 {
		return 1
	}
	return n
}

// untilDecisionTime is the value of the annotation if an approver must decide before the workload
// may be started. It is a valid time for programs that parse it.
const untilDecisionTime = "9999-12-31T23:59:59Z"

// FormatStoppedUntil returns the value of the annotation sluice.dev/stopped-until for a policy
// time. The zero time means until an approver decides.
func FormatStoppedUntil(until time.Time) string {
	if until.IsZero() {
		return untilDecisionTime
	}
	return until.UTC().Format(time.RFC3339)
}

// ParseStoppedUntil reports whether Sluice stopped the object, and until when (policy time, in
// whole seconds). The zero time means until an approver decides. An invalid value means the same,
// so that it does not allow a start.
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
