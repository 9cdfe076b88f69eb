// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sluice.dev/manifests"
)

// What the launcher cannot do is an error that names the field, and never left out.
func TestCheckSupported(t *testing.T) {
	container := func(fields string) string { return "containers: [{name: a, image: a, " + fields + "}]" }
	tests := map[string]struct{ spec, want string }{
		"subPath":            {container("volumeMounts: [{name: v, mountPath: /a, subPath: x}]"), "containers[a].volumeMounts[v].subPath: not supported"},
		"exec probe":         {container("livenessProbe: {exec: {command: [x]}}"), "containers[a].livenessProbe: the launcher supports only httpGet and tcpSocket"},
		"probe of no port":   {container("readinessProbe: {httpGet: {port: 1}}"), "readinessProbe: port 1 is no containerPort"},
		"probe elsewhere":    {container("readinessProbe: {httpGet: {port: 1, host: example.org}}"), `httpGet.host "example.org"`},
		"postStart":          {container("lifecycle: {postStart: {sleep: {seconds: 1}}}"), "containers[a].lifecycle.postStart"},
		"preStop exec":       {container("lifecycle: {preStop: {exec: {command: [x]}}}"), "containers[a].lifecycle.preStop.exec"},
		"envFrom":            {container("envFrom: [{configMapRef: {name: a}}]"), "containers[a].envFrom"},
		"working directory":  {container("workingDir: /tmp"), "containers[a].workingDir"},
		"UDP":                {container("ports: [{containerPort: 53, protocol: UDP}]"), "ports[53]"},
		"host port":          {container("ports: [{containerPort: 53, hostPort: 53}]"), "ports[53]"},
		"root as non-root":   {container("securityContext: {runAsNonRoot: true, runAsUser: 0}"), "runAsNonRoot contradicts runAsUser 0"},
		"sidecar":            {"initContainers: [{name: i, image: a, restartPolicy: Always}]", "initContainers[i].restartPolicy"},
		"host network":       {"hostNetwork: true", "hostNetwork: not supported"},
		"readiness gates":    {"readinessGates: [{conditionType: a}]", "readinessGates"},
		"deadline":           {"activeDeadlineSeconds: 5", "activeDeadlineSeconds"},
		"host aliases":       {"hostAliases: [{ip: 1.2.3.4}]", "hostAliases"},
		"NFS":                {"volumes: [{name: v, nfs: {server: a, path: /}}]", "volumes[v].nfs"},
		"claim":              {"volumes: [{name: v, persistentVolumeClaim: {claimName: a}}]", "volumes[v].persistentVolumeClaim"},
		"socket of the host": {"volumes: [{name: v, hostPath: {path: /a, type: Socket}}]", "volumes[v].hostPath.type Socket"},
		"projected bundle":   {"volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {path: a}}]}}]", "volumes[v].projected.clusterTrustBundle"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			if err := yaml.UnmarshalStrict([]byte(tc.spec), &pod.Spec); err != nil {
				t.Fatal(err)
			}
			if err := checkSupported(pod); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// The launcher supports all that the shipped pods have.
func TestCheckSupportedInManifests(t *testing.T) {
	for _, overlay := range []string{manifests.Production, manifests.Minimal, manifests.RKE2, manifests.WithoutOperator} {
		objects, err := manifests.Build(overlay)
		if err != nil {
			t.Fatal(err)
		}
		pods := 0
		for _, object := range objects {
			if kind := object.GetKind(); kind != "Deployment" && kind != "DaemonSet" {
				continue
			}
			raw, err := json.Marshal(object.Object)
			if err != nil {
				t.Fatal(err)
			}
			var workload appsv1.Deployment
			if err := json.Unmarshal(raw, &workload); err != nil {
				t.Fatal(err)
			}
			pods++
			if err := checkSupported(&corev1.Pod{Spec: workload.Spec.Template.Spec}); err != nil {
				t.Errorf("%s: %s: %v", overlay, object.GetName(), err)
			}
		}
		if pods == 0 {
			t.Errorf("%s has no pods", overlay)
		}
	}
}
