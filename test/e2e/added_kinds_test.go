// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os/exec"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// An administrator adds a kind that Sluice does not know, with the setting and the rules together: its object is refused because of
// its pods, its creator is recorded and stays. The rules go with the setting.
func TestAddedKinds(t *testing.T) {
	t.Parallel()
	const ns, group = "added-kinds", "added-kinds.example.org"
	sharedCluster.createDepartment(t, ns, newPoolQuota("dgx", "2", "4"))
	sharedCluster.createGovernedProject(t, ns, ns, newPoolQuota("dgx", "1", "2"))
	createCRD(t, group, "v1", "Trainer", "trainers")
	admin := sharedCluster.adminClient
	worker := func(image, gpus string) map[string]any {
		return map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
			"name": "main", "image": image, "resources": map[string]any{"limits": map[string]any{"nvidia.com/gpu": gpus}},
		}}}}}
	}
	trainer := func(name string, workers ...any) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/v1", "kind": "Trainer", "spec": map[string]any{"workers": workers, "epochs": int64(1)},
		}}
		object.SetNamespace(ns)
		object.SetName(name)
		return object
	}
	const denial = `admission webhook "added-templates.sluice.dev" denied the request: pods of Trainer bad would be denied: spec.workers[1].template: `
	bad := trainer("bad", worker("x", "1"), worker("x", "64"))
	earlier := trainer("earlier", worker("x", "64"))
	eventually(t, func() error { return client.IgnoreAlreadyExists(admin.Create(t.Context(), earlier.DeepCopy())) })
	expectError(t, admin.Create(t.Context(), bad.DeepCopy(), client.DryRunAll), "")

	patchKind := func(kind string) error {
		patch := `{"spec":{"podTemplates":[{"kind":"` + kind + `","resource":"trainers","paths":["spec.workers[*].template"]}]}}`
		parameters := &v1alpha1.AdmissionParameters{}
		parameters.Name = v1alpha1.AdmissionParametersName
		return admin.Patch(t.Context(), parameters, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	expectError(t, patchKind("Workflow.argoproj.io"), "Sluice evaluates the templates of this kind without an entry")
	expectError(t, patchKind("Deployment.apps"), "spec.podTemplates[0].kind")
	workloadKinds := func(arguments ...string) {
		t.Helper()
		arguments = append([]string{"workload-kinds"}, append(arguments, "--dir", sharedCluster.dir)...)
		output, err := exec.CommandContext(context.WithoutCancel(t.Context()), sharedCluster.binary, arguments...).CombinedOutput()
		if err != nil {
			t.Errorf("sluice %s: %v\n%s", strings.Join(arguments, " "), err, output)
		}
		t.Logf("sluice %s\n%s", strings.Join(arguments, " "), output)
	}
	kind := "Trainer." + group
	remove := sync.OnceFunc(func() { workloadKinds("remove", kind, "--apply") })
	t.Cleanup(remove)
	workloadKinds("add", kind, "--resource", "trainers", "--path", "spec.workers[*].template", "--apply")
	refused := func() error {
		return checkRejected(admin.Create(t.Context(), bad.DeepCopy(), client.DryRunAll), denial)
	}
	eventually(t, refused)
	t.Log(admin.Create(t.Context(), bad.DeepCopy(), client.DryRunAll))

	// Only a changed template is evaluated.
	patch := func(object *unstructured.Unstructured, body string) error {
		return admin.Patch(t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(body)), client.DryRunAll)
	}
	expectError(t, patch(earlier, `{"metadata":{"labels":{"mine":"yes"}},"spec":{"epochs":2}}`), "")
	expectError(t, patch(earlier, `{"spec":{"workers":[{"template":{"spec":{"containers":[{"name":"main","image":"y","resources":{"limits":{"nvidia.com/gpu":"64"}}}]}}}]}}`),
		"pods of Trainer earlier would be denied: spec.workers[0].template: ")

	// The creator is recorded, and a policy of the API server keeps it.
	good := trainer("good", worker("x", "1"))
	if err := admin.Create(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	if good.GetAnnotations()[v1alpha1.AnnotationCreatedBy] == "" {
		t.Error("no creator is recorded")
	}
	eventually(t, func() error {
		return checkRejected(patch(good, `{"metadata":{"annotations":{"sluice.dev/created-by":"other@example.org"}}}`), "does not change afterwards")
	})

	// The rules are removed, as by kubectl replace. The command writes them again.
	var validating admissionv1.ValidatingWebhookConfiguration
	var mutating admissionv1.MutatingWebhookConfiguration
	eventually(t, func() error {
		if err := admin.Get(t.Context(), client.ObjectKey{Name: "sluice"}, &validating); err != nil {
			return err
		}
		for i := range validating.Webhooks {
			if strings.HasPrefix(validating.Webhooks[i].Name, "added-") {
				validating.Webhooks[i].Rules = nil
			}
		}
		return admin.Update(t.Context(), &validating)
	})
	rules := func(want int) func() error {
		return func() error {
			if err := admin.Get(t.Context(), client.ObjectKey{Name: "sluice"}, &validating); err != nil {
				return err
			}
			if err := admin.Get(t.Context(), client.ObjectKey{Name: "sluice"}, &mutating); err != nil {
				return err
			}
			counts := map[string]int{}
			for i := range validating.Webhooks {
				counts[validating.Webhooks[i].Name] = len(validating.Webhooks[i].Rules)
			}
			for i := range mutating.Webhooks {
				counts[mutating.Webhooks[i].Name] = len(mutating.Webhooks[i].Rules)
			}
			if counts["added-templates.sluice.dev"] != want || counts["added-workloads.sluice.dev"] != want {
				return unexpectedState("both webhooks have the rules of the added kind", counts)
			}
			return nil
		}
	}
	workloadKinds("add", kind, "--resource", "trainers", "--path", "spec.workers[*].template", "--apply")
	eventually(t, rules(1))
	eventually(t, refused)

	remove()
	eventually(t, rules(0))
	eventually(t, func() error { return admin.Create(t.Context(), bad.DeepCopy(), client.DryRunAll) })
}
