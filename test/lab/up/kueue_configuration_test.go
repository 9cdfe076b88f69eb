// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// Sluice's policies for Kueue depend on these settings.
func TestKueueConfiguration(t *testing.T) {
	raw, err := kueueConfiguration(kueueSettings{
		Health: "127.0.0.1:20001", Metrics: "127.0.0.1:20002", WebhookPort: 20003, Certificates: "/lab/anna's room: a/certificates",
	})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.UnmarshalStrict(raw, &got); err != nil {
		t.Fatalf("%v in\n%s", err, raw)
	}
	integrations := got["integrations"].(map[string]any)["frameworks"].([]any)
	if diff := cmp.Diff([]any{"batch/job", "pod", "deployment", "statefulset"}, integrations[:4]); diff != "" {
		t.Errorf("frameworks (-want +got)\n%s", diff)
	}
	delete(got, "integrations")
	want := map[string]any{
		"apiVersion":     "config.kueue.x-k8s.io/v1beta2",
		"kind":           "Configuration",
		"namespace":      "kueue-system",
		"health":         map[string]any{"healthProbeBindAddress": "127.0.0.1:20001"},
		"metrics":        map[string]any{"bindAddress": "127.0.0.1:20002", "enableClusterQueueResources": true},
		"webhook":        map[string]any{"host": "127.0.0.1", "port": 20003.0, "certDir": "/lab/anna's room: a/certificates"},
		"leaderElection": map[string]any{"leaderElect": false},
		"internalCertManagement": map[string]any{
			"enable":             true,
			"webhookServiceName": "kueue-webhook-service",
			"webhookSecretName":  "kueue-webhook-server-cert",
		},
		"clientConnection": map[string]any{"qps": 200.0, "burst": 400.0},
		"fairSharing":      map[string]any{"preemptionStrategies": []any{"LessThanOrEqualToFinalShare", "LessThanInitialShare"}},
		"resources": map[string]any{
			"excludeResourcePrefixes": []any{"cpu", "memory", "ephemeral-storage", "hugepages-", "nvidia.com/", "sluice.dev/gpu-milli.", "sluice.dev/guaranteed-milli"},
		},
		"manageJobsWithoutQueueName": false,
		"managedJobsNamespaceSelector": map[string]any{
			"matchExpressions": []any{map[string]any{"key": "sluice.dev/project", "operator": "Exists"}},
		},
		"featureGates": map[string]any{"VisibilityOnDemand": false, "MultiKueue": false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
