// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// A workload is its creator's, and only the creator, L1 researchers, editors and administrators end it.
var _ = attacks(
	colleaguesWorkload("Pod"),
	colleaguesWorkload("Job"),
	colleaguesWorkload("Deployment"),
	colleaguesWorkloadDeleted("Pod"),
	colleaguesWorkloadDeleted("Job"),
	colleaguesWorkloadDeleted("Deployment"),
	row{
		class: identity, name: "decisions of policies forged on a pod", engines: everyEngine,
		attack:   create("Pod", `{metadata: {annotations: {sluice.dev/decisions: '{"core.gpu":["forged"]}'}}}`),
		harmless: lacks("forged"),
	},
	row{
		class: identity, name: "a stamp forged on a pod", engines: everyEngine,
		attack: create("Pod", `{metadata: {annotations: {sluice.dev/evaluated-under: forged}}}`), harmless: lacks("forged"),
	},
	row{
		class: identity, name: "decisions of policies forged on a pod like an admitted one", attack: copied,
		harmless: lacks("forged"),
	},
	row{
		class: identity, name: "another creator of a pod",
		attack: create("Pod", `{metadata: {annotations: {sluice.dev/created-by: other@example.org}}}`), harmless: createdByItself,
	},
	row{
		class: owners, name: "a pod that says that a quota controls it", engines: everyEngine,
		attack: create("Pod", "{metadata: {ownerReferences: [{apiVersion: v1, kind: ResourceQuota, name: sluice, uid: u, controller: true}]}}"),
		want:   "only a controller may say",
	},
	row{
		class: owners, name: "a pod that says later that a Job controls it",
		attack: patch(own("Pod"), `{"metadata":{"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"j","uid":"u","controller":true}]}}`),
		want:   "only a controller may say",
	},
	row{
		class: identity, name: "another project's workload deleted", roles: []role{l2, l1, editor, serviceAccount, owner, manager, viewer, outsider},
		attack: remove(neighbors("Pod")), want: "cannot delete resource \"pods\"",
	},
	row{
		class: identity, name: "another project's workload changed", roles: []role{l2, l1, editor, serviceAccount, owner, manager, viewer, dean, outsider},
		attack: patch(neighbors("Job"), `{"spec":{"suspend":false}}`), want: "cannot patch resource \"jobs\"",
	},
	row{
		class: identity, name: "a pod in another project", roles: []role{l2, l1, editor, serviceAccount, owner, manager, viewer, dean, outsider},
		attack: inNamespace(neighborhood, apply("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: main, image: any}]}}")),
		want:   "cannot create resource \"pods\"",
	},
	row{
		class: identity, name: "a pod in the attacked project", roles: []role{neighbor, outsider}, engines: everyEngine,
		attack: apply("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: main, image: any}]}}"),
		want:   "cannot create resource \"pods\"",
	},
)

// copied creates a pod like one that Sluice admitted, with other decisions.
var copied = do("create a copy of an admitted pod with other decisions", func(a *attacker) (*unstructured.Unstructured, error) {
	admitted, err := create("Pod", "").run(a)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFixture, err)
	}
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "spec": admitted.Object["spec"],
		"metadata": map[string]any{"name": a.intruder()},
	}}
	pod.SetLabels(admitted.GetLabels())
	annotations := admitted.GetAnnotations()
	if annotations[v1alpha1.AnnotationDecisions] == "" {
		return nil, fmt.Errorf("%w: no decision is recorded on the admitted pod", errFixture)
	}
	annotations[v1alpha1.AnnotationDecisions] = `{"core.gpu":["forged"]}`
	annotations[v1alpha1.AnnotationEvaluatedUnder] += ",forged"
	pod.SetAnnotations(annotations)
	return pod, a.create(pod)
})

func colleaguesWorkload(kind string) row {
	return row{
		class: identity, name: "a colleague's " + kind + " changed", roles: []role{l2}, attack: patch(colleagues(kind), noteBody),
		want: "was created by {colleague}", control: patch(own(kind), noteBody),
	}
}

func colleaguesWorkloadDeleted(kind string) row {
	return row{
		class: identity, name: "a colleague's " + kind + " deleted", roles: []role{l2}, attack: remove(colleagues(kind)),
		want: "was created by {colleague}", control: remove(own(kind)),
	}
}

// lacks is a harmless result whose object does not contain the text.
func lacks(text string) func(a *attacker, got *unstructured.Unstructured) error {
	return func(_ *attacker, got *unstructured.Unstructured) error {
		raw, err := got.MarshalJSON()
		if err == nil && strings.Contains(string(raw), text) {
			err = fmt.Errorf("the object contains %q: %s", text, raw)
		}
		return err
	}
}

// has is a harmless result whose object has the value at a path, such as "spec.schedulerName". A dot
// of a key is escaped.
func has(path, want string) func(a *attacker, got *unstructured.Unstructured) error {
	return func(a *attacker, got *unstructured.Unstructured) error {
		fields := strings.Split(strings.ReplaceAll(path, `\.`, "\n"), ".")
		for i := range fields {
			fields[i] = strings.ReplaceAll(fields[i], "\n", ".")
		}
		value, _, err := unstructured.NestedFieldNoCopy(got.Object, fields...)
		if found := fmt.Sprint(value); err != nil || found != a.expand(want) {
			return fmt.Errorf("%s is %s, want %s", path, found, a.expand(want))
		}
		return nil
	}
}

func createdByItself(a *attacker, got *unstructured.Unstructured) error {
	if by := got.GetAnnotations()[v1alpha1.AnnotationCreatedBy]; by != a.role.user(a.namespace) {
		return fmt.Errorf("created by %q", by)
	}
	return nil
}

// What only Sluice and the cluster's administrators write.
var _ = attacks(
	onlySluice("a network policy", apply("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: open}, spec: {podSelector: {}}}")),
	onlySluice("a role binding", apply("{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: more},"+
		" roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: '{user}'}]}")),
	onlySluice("a service account", apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot-2}}")),
	row{
		class: identity, name: "the project's members removed", roles: []role{l2, l1, editor, serviceAccount, engineer, viewer, owner, neighbor, outsider},
		attack: patch(named("Project", "{project}"), `{"spec":{"members":[]}}`), want: "cannot patch resource \"projects\"",
	},
	onlySluice("the namespace changed", patch(ownNamespace, `{"metadata":{"labels":{"a":"b"}}}`)),
	onlySluice("a clock", apply("{apiVersion: sluice.dev/v1alpha1, kind: WorkloadClock, metadata: {name: forged}, spec: {}}")),
	onlySluice("all projects read", list(&v1alpha1.ProjectList{})),
	onlySluice("the usage records read", list(&v1alpha1.UsageRecordList{})),
	onlySluice("the notices read", list(&v1alpha1.NoticeList{})),
)

// list reads all objects of a kind in the cluster.
func list(of client.ObjectList) attempt {
	return do(fmt.Sprintf("list %T", of), func(a *attacker) (*unstructured.Unstructured, error) {
		copied, _ := of.DeepCopyObject().(client.ObjectList)
		return nil, a.client.List(a.t.Context(), copied)
	})
}

func onlySluice(name string, request attempt) row {
	return row{
		class: identity, name: name, roles: []role{l2, l1, editor, serviceAccount, engineer, manager, viewer, owner, neighbor, outsider}, attack: request,
		want: byRBAC,
	}
}
