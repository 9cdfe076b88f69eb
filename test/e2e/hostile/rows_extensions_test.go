// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// More time for a workload is requested by its creator and by those who answer for the project.
var _ = attacks(
	row{
		class: extensions, name: "a colleague's workload extended", roles: []role{l2, l1, editor, serviceAccount}, rbac: []role{viewer, neighbor, outsider},
		attack: extend(colleague, `{spec: {by: 1m}}`), want: "was created by {colleague}, and {user} cannot extend it", control: extend("", `{spec: {by: 1m}}`),
	},
	row{
		class: extensions, name: "a colleague's workload extended in her name", roles: []role{l2, l1, editor, serviceAccount},
		attack: extend(colleague, `{metadata: {annotations: {sluice.dev/created-by: "{colleague}"}}, spec: {by: 1m}}`),
		want:   "was created by {colleague}, and {user} cannot extend it", control: extend("", `{spec: {by: 1m}}`),
	},
	row{
		class: extensions, name: "a member's workload extended by those who answer for it", allowed: true, roles: []role{manager, owner, dean},
		attack: extend(colleague, `{spec: {by: 1m}}`),
	},
	row{
		class: extensions, name: "requests repeated and withdrawn", roles: []role{l2}, fresh: true, attack: really(requestedInALoop),
		want: "has requested 10 extensions in namespace {namespace} within 24 hours", uncontrolled: "the first ten requests are accepted",
	},
)

// extend requests more time for a Job of a role that ran; the attacker's own if it is empty. It is suspended then, since the pool has
// eight GPUs for all rows.
func extend(of role, fragment string) attempt {
	return attempt{text: fmt.Sprintf("extend a Job of %q with %s", of, fragment), run: func(a *attacker) (*unstructured.Unstructured, error) {
		creator := a
		if of != "" {
			creator = a.as(of)
		}
		job, err := creator.fixture("Job", "{spec: {suspend: false}}", inTemplate("Job", limits("nvidia.com/gpu")))
		if err != nil {
			return nil, err
		}
		creator.eventually(func() error { return creator.checkClock("Job", job.GetName()) })
		suspend := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`))
		if err := a.world.Admin.Patch(a.t.Context(), job.DeepCopy(), suspend); err != nil {
			return nil, fmt.Errorf("%w: %w", errFixture, err)
		}
		return a.extend(job.GetName(), a.intruder(), fragment)
	}}
}

// extend requests more time for a Job.
func (a *attacker) extend(job, name, fragment string) (*unstructured.Unstructured, error) {
	const asExtension = `{spec: {action: Extend, target: {apiVersion: batch/v1, kind: Job, name: %s}}}`
	extension, err := a.ordinary("Extension", name, fmt.Sprintf(asExtension, job), fragment)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFixture, err)
	}
	return extension, a.create(extension)
}

// requestedInALoop requests a decision, withdraws the request and repeats that, until it is refused. The contact gets one
// mail, and an hour later one if requests are left.
var requestedInALoop = do("request decisions and withdraw the requests", func(a *attacker) (*unstructured.Unstructured, error) {
	job, err := a.runJob()
	if err != nil {
		return nil, err
	}
	for i := range 20 {
		extension, err := a.extend(job.GetName(), fmt.Sprint("again-", i), `{spec: {by: 48h}}`)
		if err != nil {
			return extension, a.checkOneMail(err)
		}
		a.eventually(func() error {
			var now v1alpha1.Extension
			if err := a.world.Admin.Get(a.t.Context(), client.ObjectKeyFromObject(extension), &now); err != nil {
				return err
			}
			if !meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ConditionAnnounced) {
				return fmt.Errorf("extension %s is not announced: %+v", now.Name, now.Status)
			}
			return nil
		})
		if err := a.client.Delete(a.t.Context(), extension); err != nil {
			return nil, fmt.Errorf("%w: %w", errFixture, err)
		}
	}
	return nil, nil
})

// checkOneMail returns the refusal, unless more than one mail of its own requests a decision in the namespace.
func (a *attacker) checkOneMail(refusal error) error {
	var all v1alpha1.NoticeList
	if err := a.world.Admin.List(a.t.Context(), &all); err != nil {
		return fmt.Errorf("%w: %w", errFixture, err)
	}
	mails := map[string]bool{}
	for i := range all.Items {
		n := &all.Items[i]
		if n.Spec.Kind != v1alpha1.NoticeExtensionRequested || n.Spec.Subject.Namespace != a.namespace {
			continue
		}
		if n.Spec.Digest == "" {
			mails[n.Name] = true
		} else {
			mails[n.Spec.Digest] = true
		}
	}
	if len(mails) > 2 { // the first, and that of all others an hour later
		return fmt.Errorf("%d mails", len(mails))
	}
	return refusal
}
