// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
)

// overlays are the kustomizations that can be applied as they are.
var overlays = []string{manifests.Minimal, manifests.Production, manifests.RKE2, manifests.WithoutOperator}

// podTemplate is a pod of the manifests with the object that creates it.
type podTemplate struct {
	kind, name, namespace string
	metadata              metav1.ObjectMeta
	spec                  corev1.PodSpec
}

// podTemplates returns the pods of an overlay.
func podTemplates(t *testing.T, overlay string) (pods []podTemplate) {
	t.Helper()
	for _, object := range buildObjects(t, overlay) {
		switch object.GetKind() {
		case "Deployment":
			var deployment appsv1.Deployment
			decode(t, object, &deployment)
			pods = append(pods, podTemplate{"Deployment", deployment.Name, deployment.Namespace, deployment.Spec.Template.ObjectMeta, deployment.Spec.Template.Spec})
		case "DaemonSet":
			var set appsv1.DaemonSet
			decode(t, object, &set)
			pods = append(pods, podTemplate{"DaemonSet", set.Name, set.Namespace, set.Spec.Template.ObjectMeta, set.Spec.Template.Spec})
		case "Job":
			var job batchv1.Job
			decode(t, object, &job)
			pods = append(pods, podTemplate{"Job", job.Name, job.Namespace, job.Spec.Template.ObjectMeta, job.Spec.Template.Spec})
		case "CronJob":
			var job batchv1.CronJob
			decode(t, object, &job)
			template := job.Spec.JobTemplate.Spec.Template
			pods = append(pods, podTemplate{"CronJob", job.Name, job.Namespace, template.ObjectMeta, template.Spec})
		case "StatefulSet", "ReplicaSet", "Pod":
			t.Errorf("%s: the tests do not know the pods of %s %s", overlay, object.GetKind(), object.GetName())
		}
	}
	return pods
}

// built has the objects of each folder; the tests do not change them.
var built = map[string][]*unstructured.Unstructured{}

func buildObjects(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	if objects, ok := built[folder]; ok {
		return objects
	}
	objects, err := manifests.Build(folder)
	if err != nil {
		t.Fatal(err)
	}
	built[folder] = objects
	return objects
}

// findObject fills in the object of that kind and name.
func findObject(t *testing.T, objects []*unstructured.Unstructured, kind, name string, into any) {
	t.Helper()
	at := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
	if at < 0 {
		t.Fatalf("there is no %s %s", kind, name)
	}
	decode(t, objects[at], into)
}

// decode fills in a typed object, strictly.
func decode(t *testing.T, object *unstructured.Unstructured, into any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true); err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
}

// agentViolations are the violations of the level restricted by the agent's pod: docs/platform/gpus.md has the
// reason of each. There is no other.
var agentViolations = []string{
	`allowPrivilegeEscalation != false: container "gpuagent" must set securityContext.allowPrivilegeEscalation=false`,
	`host namespaces: hostPID=true`,
	`privileged: container "gpuagent" must not set securityContext.privileged=true`,
	`restricted volume types: volumes "pod-resources", "state", "host-proc", "host-dev", "host-driver", "host-units" use restricted volume type "hostPath"`,
	`runAsNonRoot != true: pod or container "gpuagent" must set securityContext.runAsNonRoot=true`,
	`runAsUser=0: container "gpuagent" must not set runAsUser=0`,
	`seccompProfile: pod or container "gpuagent" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"`,
	`unrestricted capabilities: container "gpuagent" must set securityContext.capabilities.drop=["ALL"]`,
}

// Each pod complies with the level that its namespace enforces, in the oldest and the latest version, and the
// agent has the listed privileges only.
func TestPodSecurity(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, overlay := range overlays {
		levels := map[string]podsecurity.Level{}
		for _, object := range buildObjects(t, overlay) {
			if object.GetKind() == "Namespace" {
				levels[object.GetName()] = podsecurity.Level(object.GetLabels()[v1alpha1.LabelPodSecurityEnforce])
			}
		}
		for _, pod := range podTemplates(t, overlay) {
			level := levels[pod.namespace]
			if want := map[string]podsecurity.Level{v1alpha1.SystemNamespace: podsecurity.LevelRestricted, v1alpha1.AgentNamespace: podsecurity.LevelPrivileged}[pod.namespace]; level != want {
				t.Errorf("%s: namespace %q enforces %q, want %q", overlay, pod.namespace, level, want)
			}
			for _, version := range []podsecurity.Version{podsecurity.MajorMinorVersion(1, 32), podsecurity.LatestVersion()} {
				allowed := violations(evaluator, podsecurity.LevelVersion{Level: level, Version: version}, pod)
				if len(allowed) > 0 {
					t.Errorf("%s: %s %s is refused in its namespace: %q", overlay, pod.kind, pod.name, allowed)
				}
				if pod.namespace != v1alpha1.AgentNamespace {
					continue
				}
				got := violations(evaluator, podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: version}, pod)
				if diff := cmp.Diff(agentViolations, got); diff != "" {
					t.Errorf("%s: privileges of the agent (-listed +got)\n%s", overlay, diff)
				}
			}
		}
	}
}

// violations returns what a level forbids of a pod, sorted.
func violations(evaluator policy.Evaluator, level podsecurity.LevelVersion, pod podTemplate) (list []string) {
	for _, result := range evaluator.EvaluatePod(level, &pod.metadata, &pod.spec) {
		if !result.Allowed {
			list = append(list, result.ForbiddenReason+": "+result.ForbiddenDetail)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// The SecurityContextConstraints for OpenShift grant the agent what its pod uses, and no more.
func TestOpenShiftConstraints(t *testing.T) {
	objects, err := manifests.BuildWith(manifests.Production, manifests.OpenShift)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "SecurityContextConstraints" })
	if at < 0 {
		t.Fatal("there are none")
	}
	constraints := objects[at].Object
	var pod corev1.PodSpec
	for _, p := range podTemplates(t, manifests.Production) {
		if p.namespace == v1alpha1.AgentNamespace {
			pod = p.spec
		}
	}
	allowed := map[string]bool{}
	for key, value := range constraints {
		if yes, isBool := value.(bool); isBool && strings.HasPrefix(key, "allow") {
			allowed[key] = yes
		}
	}
	privileged := *pod.Containers[0].SecurityContext.Privileged
	want := map[string]bool{
		"allowPrivilegedContainer": privileged, "allowPrivilegeEscalation": privileged,
		"allowHostPID": pod.HostPID, "allowHostIPC": pod.HostIPC, "allowHostNetwork": pod.HostNetwork, "allowHostPorts": false,
		"allowHostDirVolumePlugin": slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil }),
	}
	if diff := cmp.Diff(want, allowed); diff != "" {
		t.Errorf("(-pod +constraints)\n%s", diff)
	}
	used := map[string]bool{"projected": true} // the token
	for _, volume := range pod.Volumes {
		switch {
		case volume.HostPath != nil:
			used["hostPath"] = true
		case volume.ConfigMap != nil:
			used["configMap"] = true
		default:
			t.Errorf("the test does not know volume %s", volume.Name)
		}
	}
	volumes, _, _ := unstructured.NestedStringSlice(constraints, "volumes")
	if diff := cmp.Diff(slices.Sorted(maps.Keys(used)), volumes); diff != "" {
		t.Errorf("volumes (-pod +constraints)\n%s", diff)
	}
	users, _, _ := unstructured.NestedStringSlice(constraints, "users")
	if diff := cmp.Diff([]string{"system:serviceaccount:" + v1alpha1.AgentNamespace + ":" + pod.ServiceAccountName}, users); diff != "" {
		t.Errorf("users (-want +got)\n%s", diff)
	}
}
