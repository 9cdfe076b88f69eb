// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/lifecycle/rendering/requirements"
	"sluice.dev/manifests"
	"sluice.dev/policies/engine"
	"sluice.dev/test/clustertest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m, grantAccess)
}

// grantAccess gives the controller the rights that are installed with it.
func grantAccess(ctx context.Context, c *clustertest.Cluster) error {
	admin, err := client.New(c.Config(), client.Options{})
	if err != nil {
		return err
	}
	installed, err := manifests.Build(manifests.Base)
	if err != nil {
		return err
	}
	for _, object := range installed {
		if object.GetName() == "sluice-lifecycle" && strings.HasPrefix(object.GetKind(), "ClusterRole") {
			if err := admin.Create(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

const testCRD = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: configs.kai.scheduler}, spec: {
  group: kai.scheduler, scope: Cluster, names: {plural: configs, kind: Config},
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`

// An engine is installed and configured, and goes again, while the same program
// looks with the controller's own rights.
func TestCheckerInCluster(t *testing.T) {
	config := clustertest.Start(t).Config()
	admin, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:sluice-system:lifecycle", Groups: []string{"system:serviceaccounts", "system:authenticated"},
	}
	lifecycle, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kai := &engine.Setting{APIVersion: "kai.scheduler/v1", Kind: "Config", Name: "kai-config", Path: []string{"spec", "global", "queueLabelKey"}}
	kueue := &engine.Setting{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: "kueue-system", Name: "kueue-manager-config",
		Path: []string{"data", "controller_manager_config.yaml", "fairSharing"},
	}
	requires := []engine.Requirement{
		{Policy: "it", CRD: "configs.kai.scheduler", Version: "v1", Fix: "install KAI"},
		{Policy: "it", Setting: kai, As: "queueLabelKey", Default: "kai.scheduler/queue"},
		{Policy: "it", Setting: kueue, Fix: "turn it on"},
	}
	const noKAI, noKueue = "the custom resource definition configs.kai.scheduler does not exist: install KAI (policy it)", "ConfigMap kueue-system/kueue-manager-config does not exist: turn it on (policy it)"
	expect := func(label string, want ...string) {
		t.Helper()
		clustertest.Eventually(t, func() error {
			found, err := requirements.NewChecker(lifecycle, lifecycle.RESTMapper()).Check(t.Context(), requires, nil)
			if err != nil {
				return err
			}
			if got := strings.Join(found.Messages(), "; "); got != strings.Join(want, "; ") || found.Settings["queueLabelKey"] != label {
				return fmt.Errorf("label %s, missing %q; want %s, %q", found.Settings["queueLabelKey"], got, label, want)
			}
			return nil
		})
	}
	create := func(text string) *unstructured.Unstructured {
		t.Helper()
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
			t.Fatal(err)
		}
		clustertest.Eventually(t, func() error { return admin.Create(t.Context(), object) })
		t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), object) }) // mostly gone already
		return object
	}
	expect("kai.scheduler/queue", noKAI, noKueue)
	crd := create(testCRD)
	expect("kai.scheduler/queue", noKueue)
	create(`{apiVersion: kai.scheduler/v1, kind: Config, metadata: {name: kai-config}, spec: {global: {queueLabelKey: team}}}`)
	expect("team", noKueue)
	create(`{apiVersion: v1, kind: Namespace, metadata: {name: kueue-system}}`)
	create(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: kueue-system, name: kueue-manager-config}, data: {controller_manager_config.yaml: "fairSharing: {}"}}`)
	expect("team")

	// Without the right to read a configuration, the error names the missing right.
	requires[2].Setting = &engine.Setting{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kueue-system", Name: "kube-root-ca.crt", Path: []string{"data"}}
	expect("team", `configmaps "kube-root-ca.crt" is forbidden: User "system:serviceaccount:sluice-system:lifecycle" cannot get resource "configmaps" in API group "" in the namespace "kueue-system": `+
		"give Sluice's lifecycle controller the right to get configmaps/kube-root-ca.crt (policy it)")

	if err := admin.Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	requires = requires[:2]
	expect("kai.scheduler/queue", noKAI)

	// A server that does not answer is an error.
	config.Host = "https://127.0.0.1:1"
	unreachable, err := client.New(config, client.Options{Mapper: lifecycle.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := requirements.NewChecker(unreachable, unreachable.RESTMapper()).Check(t.Context(), requires, nil); err == nil || found.Missing != nil || errors.Is(err, context.Canceled) {
		t.Errorf("of a server that does not answer: %v, %v", found, err)
	}
}
