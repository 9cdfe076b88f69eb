// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"sluice.dev/manifests"
	"sluice.dev/test/clustertest"
)

// evalObjects are what `sluice policy eval` reads of a cluster.
const evalObjects = `apiVersion: v1
kind: Namespace
metadata: {name: sluice-system}
---
apiVersion: v1
kind: Namespace
metadata: {name: optics, labels: {stage: closed}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: images, namespace: sluice-system, labels: {sluice.dev/policy-data: "true"}}
data: {refused: "a:1"}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: scratch}
provisioner: example.org/none
---
apiVersion: sluice.dev/v1alpha1
kind: AdmissionParameters
metadata: {name: sluice}
spec:
  policyData: [{apiVersion: storage.k8s.io/v1, kind: StorageClass, scope: Cluster}]
  podTemplates: [{kind: Trainer.ml.example.org, resource: trainers, paths: [spec.template]}]
---
apiVersion: sluice.dev/v1alpha1
kind: Department
metadata: {name: physics}
spec: {}
---
apiVersion: sluice.dev/v1alpha1
kind: Project
metadata: {name: optics}
spec: {department: physics, owners: [{name: Anna, email: anna@example.org}]}
---
apiVersion: sluice.dev/v1alpha1
kind: Policy
metadata: {name: reads-all}
spec:
  rego: |
    package reads_all

    warn contains sprintf("stage %s", [input.namespace.labels.stage])

    warn contains sprintf("refused %s", [data.config.images.refused])

    warn contains sprintf("class %s", [name]) if some name, _ in data.objects["StorageClass.storage.k8s.io"]
`

// Without --policies, eval reads the policies, the namespace, the ConfigMaps, the objects of listed kinds, and the added pod templates
// of the cluster.
func TestPolicyEvalReadsTheCluster(t *testing.T) {
	c := clustertest.Start(t)
	if c.Attached() {
		t.Skip("it would create objects in the user's own cluster")
	}
	admin := clustertest.Admin(t)
	// Other tests of the package expect a cluster without Sluice's kinds.
	kinds, err := manifests.Build("crds")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { clustertest.RemoveKinds(t, admin, kinds) })
	if err := clustertest.InstallKinds(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(evalObjects, "---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), object); err != nil {
			t.Fatal(err)
		}
		if err := admin.Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(object.GetKind(), err)
		}
		t.Cleanup(func() {
			if object.GetName() != "sluice-system" {
				_ = admin.Delete(context.WithoutCancel(t.Context()), object) // the kind may be gone already
			}
		})
	}
	const pod = "{metadata: {name: a}, spec: {containers: [{name: main, image: \"a:1\"}]}}"
	for kind, text := range map[string]string{
		"Pod":     "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: main, image: \"a:1\"}]}\n",
		"Trainer": "apiVersion: ml.example.org/v1\nkind: Trainer\nmetadata: {name: a}\nspec: {template: " + pod + "}\n",
	} {
		file := filepath.Join(t.TempDir(), "object.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		output, err := runCommand(t, "policy", "eval", "-f", file, "--project", "optics", "--kubeconfig", c.Kubeconfig())
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		for _, want := range []string{"stage closed", "refused a:1", "class scratch"} {
			if !strings.Contains(output, want) {
				t.Errorf("%s: the output lacks %q\n%s", kind, want, output)
			}
		}
	}
}
