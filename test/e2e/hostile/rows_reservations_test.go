// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/v1alpha1"
)

const mineGate = "{spec: {schedulingGates: [{name: example.org/mine}]}}"

// queueing are the schedulers that run.
var queueing = []engine{kube, kueue}

// No member keeps GPUs reserved for pods that do not start, and none keeps a colleague's pod group from being admitted.
var _ = attacks(
	gated("Pod"), gated("Job"), gated("CronJob"), gated("StatefulSet"),
	row{
		class: reservations, name: "the gate of another scheduler", engines: []engine{kube}, want: "the scheduling gate kueue.x-k8s.io/admission keeps the pod from starting",
		attack: createWith("Pod", limits("nvidia.com/gpu"), "{spec: {schedulingGates: [{name: kueue.x-k8s.io/admission}]}}"),
	},
	row{class: reservations, name: "a scheduling gate on a pod without GPUs", engines: queueing, allowed: true, attack: create("Pod", mineGate)},
	row{
		class: reservations, name: "a colleague's pod group", engines: queueing, want: `"team" is the pod group of {colleague}, whose pods would wait for this one; choose another name`,
		attack: join("a colleague's pod group", colleague, "team"), control: join("an own pod group", "", ""),
	},
	row{
		class: reservations, name: "a colleague's pod group, with the colleague's label", engines: queueing, want: `"team" is the pod group of {colleague}`,
		attack: join("a colleague's pod group", colleague, "team", `{metadata: {labels: {sluice.dev/creator: `+v1alpha1.CreatorLabel(colleague.user(""))+`}}}`), control: join("an own pod group", "", ""),
	},
	row{class: reservations, name: "an own pod group", engines: queueing, allowed: true, attack: join("an own pod group", "", "")},
	row{
		class: reservations, name: "put back never again", roles: users, engines: []engine{kube}, want: "sluice.dev/put-back",
		attack: patch(own("Job"), `{"metadata":{"annotations":{"sluice.dev/put-back":"0"}}}`),
	},
)

// gated is a row with a scheduling gate on the pods of a kind.
func gated(kind string) row {
	return row{
		class: reservations, name: "a scheduling gate on the pods of a " + kind, engines: queueing, want: "the scheduling gate example.org/mine keeps the pod from starting",
		attack: createWith(kind, inTemplate(kind, limits("nvidia.com/gpu")), inTemplate(kind, mineGate)),
	}
}

// inGroup is the fragment of a pod in a pod group of Kueue.
func inGroup(group string) string {
	return fmt.Sprintf(`{metadata: {labels: {kueue.x-k8s.io/pod-group-name: %s}, annotations: {kueue.x-k8s.io/pod-group-total-count: "2"}}}`, group)
}

// join creates a pod in a group whose first pod is that of another role, or of the attacker if that is empty.
func join(text string, of role, group string, fragments ...string) attempt {
	return do("join "+text, func(a *attacker) (*unstructured.Unstructured, error) {
		first, group := a.as(cmp.Or(of, a.role)), cmp.Or(group, a.intruder())
		if _, err := first.fixture("Pod", limits("nvidia.com/gpu"), inGroup(group)); err != nil {
			return nil, err
		}
		pod, err := a.ordinary("Pod", a.intruder(), append([]string{limits("nvidia.com/gpu"), inGroup(group)}, fragments...)...)
		if err != nil {
			return nil, err
		}
		return pod, a.create(pod)
	})
}
