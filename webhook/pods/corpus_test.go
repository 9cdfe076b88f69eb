// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// review is an admission review of about seven kilobytes, as the API server sends
// it: of pods that differ in images, arguments, labels and the values of variables,
// by their number, and of the pods of one controller, which differ in the request
// only.
func review(tb testing.TB, number, request int) []byte {
	tb.Helper()
	return reviewOf(tb, podOf(number, request), request)
}

// unlike is a review of a pod that differs from all others also in the names of
// its containers and variables and in what they mount.
func unlike(tb testing.TB, number int) []byte {
	tb.Helper()
	pod := podOf(number, number)
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.Name = fmt.Sprintf("%s-%d", c.Name, number)
		for j := range c.Env {
			c.Env[j].Name = fmt.Sprintf("SETTING_%d_%d", number, j)
		}
		c.VolumeMounts[0].MountPath = fmt.Sprintf("/data/%d", number)
	}
	return reviewOf(tb, pod, number)
}

func podOf(number, request int) *corev1.Pod {
	container := func(name string) corev1.Container {
		c := corev1.Container{
			Name: name, Image: fmt.Sprintf("registry.example.org/team/%s:v%d", name, number),
			Command: []string{"python", "-m", "train", fmt.Sprintf("--seed=%d", number)},
			Resources: corev1.ResourceRequirements{
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("64Gi")},
				Requests: corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("64Gi")},
			},
			VolumeMounts:             []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "shm", MountPath: "/dev/shm"}},
			TerminationMessagePath:   "/dev/termination-log",
			TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			ImagePullPolicy:          corev1.PullIfNotPresent,
		}
		for i := range 12 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: fmt.Sprintf("value-%d-%d", number, i)})
		}
		return c
	}
	grace, soon := int64(30), int64(300)
	never := corev1.PreemptLowerPriority
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: fmt.Sprintf("train-%d-", number), Namespace: "thesis",
			Labels:      map[string]string{"app": "train", "run": strconv.Itoa(number)},
			Annotations: map[string]string{v1alpha1.AnnotationGPUFraction: "0.25"},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
				Time: &metav1.Time{Time: time.Date(2026, 5, 1, 12, 0, request%60, 0, time.UTC)}, FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(managed()),
			}},
		},
		Spec: corev1.PodSpec{
			Containers:    []corev1.Container{container("main"), container("sidecar")},
			RestartPolicy: corev1.RestartPolicyNever, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: "default-scheduler",
			TerminationGracePeriodSeconds: &grace, SecurityContext: &corev1.PodSecurityContext{},
			ServiceAccountName: "default", DeprecatedServiceAccount: "default", EnableServiceLinks: new(true),
			Priority: new(int32), PreemptionPolicy: &never,
			Tolerations: []corev1.Toleration{
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &soon},
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &soon},
			},
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
			},
		},
	}
	withToken(pod, byChance(request))
	return pod
}

// withToken gives a pod the volume of its token, as the API server does.
func withToken(pod *corev1.Pod, name string) {
	expires, mode := int64(3607), int32(0o644)
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &expires, Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
			}}},
		}},
	}})
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"})
	}
}

// byChance is the name of the volume with a token, another for each number.
func byChance(number int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	name := []byte("kube-api-access-")
	for range 5 {
		name = append(name, letters[number%len(letters)])
		number /= len(letters)
	}
	return string(name)
}

func reviewOf(tb testing.TB, pod any, request int) []byte {
	tb.Helper()
	object, err := json.Marshal(pod)
	if err != nil {
		tb.Fatal(err)
	}
	raw, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:  types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", request)),
			Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace: "thesis", Operation: admissionv1.Create,
			UserInfo: authenticationv1.UserInfo{Username: "system:serviceaccount:kube-system:job-controller", Groups: []string{"system:serviceaccounts", "system:authenticated"}},
			Object:   runtime.RawExtension{Raw: object},
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// managed are managed fields as the API server keeps them.
func managed() string {
	var fields []string
	for i := range 12 {
		fields = append(fields, fmt.Sprintf(`"k:{\"name\":\"SETTING_%d\"}":{".":{},"f:name":{},"f:value":{}}`, i))
	}
	env := strings.Join(fields, ",")
	return fmt.Sprintf(`{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{"f:env":{%s}},"k:{\"name\":\"sidecar\"}":{"f:env":{%s}}}}}`, env, env)
}
