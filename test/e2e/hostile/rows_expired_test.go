// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// An expired project lets in the pods that replace those of a workload that ran before, and no others.
var _ = attacks(
	inExpiredProject("a pod that claims to be one of a Job that runs", func(a *attacker, job *unstructured.Unstructured) error {
		reference := fmt.Sprintf("{metadata: {ownerReferences: [{apiVersion: batch/v1, kind: Job, name: %s, uid: %s, controller: true}]}}",
			job.GetName(), job.GetUID())
		pod, err := a.ordinary("Pod", "replacement", limits("nvidia.com/gpu"), reference)
		if err != nil {
			return err
		}
		return a.create(pod)
	}),
	inExpiredProject("a copy of a Job that runs", func(a *attacker, _ *unstructured.Unstructured) error {
		job, err := a.ordinary("Job", "another", inTemplate("Job", limits("nvidia.com/gpu")))
		if err != nil {
			return err
		}
		return a.create(job)
	}),
)

// inExpiredProject attempts to get a further pod with a GPU in a project that expires while a Job of the attacker runs.
func inExpiredProject(name string, attempt func(*attacker, *unstructured.Unstructured) error) row {
	return row{
		class: owners, name: name + ", in an expired project", roles: users, fresh: true,
		want: "has expired: it has accepted no new pods with GPUs since", uncontrolled: "the project expires in the attack",
		attack: really(do(name, func(a *attacker) (*unstructured.Unstructured, error) {
			job, err := a.runJob()
			if err != nil {
				return nil, err
			}
			at := metav1.NewTime(a.world.clock.Now().Add(time.Second)).UTC().Format(time.RFC3339)
			project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}
			closed := client.RawPatch(types.MergePatchType, []byte(`{"status":{"closedAt":"`+at+`"}}`))
			if err := a.world.Admin.Status().Patch(a.t.Context(), project, closed); err != nil {
				return nil, fmt.Errorf("%w: %w", errFixture, err)
			}
			dry := *a
			dry.dry = true
			a.eventually(func() error { // the webhook has a cache
				pod, err := a.ordinary("Pod", "new", limits("nvidia.com/gpu"))
				if err != nil {
					return err
				}
				if err := dry.create(pod); err == nil || !strings.Contains(err.Error(), "has expired") {
					return fmt.Errorf("a new pod is not refused yet: %w", err)
				}
				return nil
			})
			return job, attempt(a, job)
		})),
	}
}
