// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"

	"sluice.dev/test/clustertest"
)

// A pod's process gets its volumes, environment and identity.
func TestPodGetsFilesAndIdentity(t *testing.T) {
	n := newTestNode(t)
	core := n.client.CoreV1()
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "config"},
		Data:       map[string]string{"a.yaml": "listen: :8080\nstate: /state/x\nother: /elsewhere\n"},
	}
	if _, err := core.ConfigMaps(n.namespace).Create(t.Context(), configMap, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.create(t, "files", `
containers:
- name: a
  image: registry.example/sh:v1
  args: ["-c", "cat /etc/a/a.yaml; env; cat /etc/secret/key; cat /info/labels; echo end; exec sleep 1000"]
  ports: [{containerPort: 8080}]
  env:
  - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  - {name: LIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
  - {name: KEY, valueFrom: {secretKeyRef: {name: secret, key: key}}}
  - {name: JOINED, value: "$(NODE):/state"}
  resources: {limits: {memory: 100Mi}}
  volumeMounts:
  - {name: config, mountPath: /etc/a}
  - {name: secret, mountPath: /etc/secret}
  - {name: state, mountPath: /state}
  - {name: info, mountPath: /info}
  - {name: token, mountPath: /token}
volumes:
- {name: config, configMap: {name: config}}
- {name: secret, secret: {secretName: secret}}
- {name: state, hostPath: {path: /var/lib/a, type: DirectoryOrCreate}}
- {name: info, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: "metadata.labels['app']"}}]}}
- {name: token, projected: {sources: [{serviceAccountToken: {path: token, audience: vault, expirationSeconds: 600}}]}}
`)
	// The pod waits for its Secret, and says so.
	n.await(t, "files", "waiting for its secret", func(pod *corev1.Pod) bool {
		waiting := pod.Status.ContainerStatuses
		return len(waiting) == 1 && waiting[0].State.Waiting != nil && waiting[0].State.Waiting.Reason == "CreateContainerConfigError" &&
			strings.Contains(waiting[0].State.Waiting.Message, `secret "secret" not found`)
	})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret"}, StringData: map[string]string{"key": "hidden\n"}}
	if _, err := core.Secrets(n.namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := n.await(t, "files", "ready", isReady)
	if !strings.HasPrefix(pod.Status.PodIP, "198.18.1") || pod.Status.Phase != corev1.PodRunning {
		t.Errorf("status = %+v", pod.Status)
	}
	dir := filepath.Join(n.dir, "pods", "files")
	state := filepath.Join(n.dir, "nodes", "node-1", "var", "lib", "a")
	log := awaitFile(t, filepath.Join(n.dir, "logs", "files.log"), func(text string) bool {
		return strings.Contains(text, "\nend\n") || strings.Contains(text, "filesend\n")
	})
	for _, want := range []string{
		"listen: 127.0.0.1:", "state: " + state + "/x", "other: /elsewhere", "NODE=node-1", "LIMIT=100", "KEY=hidden",
		"JOINED=node-1:" + state, "KUBECONFIG=" + dir + "/kubeconfig", "hidden\nfiles",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("%q is not in\n%s", want, log)
		}
	}
	for path, mode := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "volumes", "secret", "key"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want %o", path, info, err, mode)
		}
	}
	n.checkIdentity(t, pod, dir)

	// A change reaches the files of a running pod.
	configMap.Data = map[string]string{"b.yaml": "new"}
	if _, err := core.ConfigMaps(n.namespace).Update(t.Context(), configMap, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitFile(t, filepath.Join(dir, "volumes", "config", "b.yaml"), func(text string) bool { return text == "new" })
	clustertest.Eventually(t, func() error {
		if _, err := os.Stat(filepath.Join(dir, "volumes", "config", "a.yaml")); !os.IsNotExist(err) {
			return errors.New("the removed key has a file")
		}
		return nil
	})
}

// checkIdentity checks that the tokens are the pod's, for the requested audience.
func (n *testNode) checkIdentity(t *testing.T, pod *corev1.Pod, dir string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	for audience, path := range map[string]string{"": config.BearerTokenFile, "vault": filepath.Join(dir, "volumes", "token", "token")} {
		token, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: string(token)}}
		if audience != "" {
			review.Spec.Audiences = []string{audience}
		}
		review, err = n.client.AuthenticationV1().TokenReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		user := review.Status.User
		if user.Username != "system:serviceaccount:"+n.namespace+":default" ||
			!slices.Contains(user.Extra["authentication.kubernetes.io/pod-name"], pod.Name) ||
			!slices.Contains(user.Extra["authentication.kubernetes.io/pod-uid"], string(pod.UID)) {
			t.Errorf("audience %q: %+v", audience, review.Status)
		}
	}
}

func TestUnsupportedPodDoesNotStart(t *testing.T) {
	n := newTestNode(t)
	const grace = "terminationGracePeriodSeconds: 3600\n" // they are removed without it
	n.create(t, "hostile", grace+"containers: [{name: a, image: sh, workingDir: /etc, args: [-c, 'touch started']}]\nhostNetwork: true\n")
	n.create(t, "unknown", grace+"containers: [{name: a, image: registry.example/miner:v1}]\n")
	for name, want := range map[string]string{
		"hostile": "containers[a].workingDir: not supported by the launcher\nhostNetwork: not supported by the launcher",
		"unknown": `image "registry.example/miner:v1" has no program here; the launcher has server, sh`,
	} {
		pod := n.await(t, name, "refused", func(pod *corev1.Pod) bool {
			return len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].State.Waiting != nil
		})
		if message := pod.Status.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(message, want) {
			t.Errorf("%s: %s, want %s", name, message, want)
		}
		if pod.Status.Phase != corev1.PodPending || isReady(pod) {
			t.Errorf("%s: %+v", name, pod.Status)
		}
		n.delete(t, name)
		n.awaitRemoval(t, name)
	}
}

// Hook Jobs: init containers run in order, and the pod ends for good.
func TestPodsThatEnd(t *testing.T) {
	n := newTestNode(t)
	ends := `restartPolicy: %POLICY%
initContainers:
- {name: one, image: sh, args: [-c, "sleep 0.3; echo one >> /shared/order"], volumeMounts: [{name: shared, mountPath: /shared}]}
- {name: two, image: sh, args: [-c, "echo two >> /shared/order"], volumeMounts: [{name: shared, mountPath: /shared}]}
containers:
- {name: main, image: sh, args: [-c, "%MAIN%"], volumeMounts: [{name: shared, mountPath: /shared}]}
volumes: [{name: shared, emptyDir: {}}]
`
	create := func(name, policy, main string) {
		n.create(t, name, strings.NewReplacer("%POLICY%", policy, "%MAIN%", main).Replace(ends))
	}
	create("succeeds", "Never", "test \\\"$(cat /shared/order | tr -d '\\\\n')\\\" = onetwo")
	create("fails", "Never", "exit 7")
	create("retries", "OnFailure", "test -e /shared/again || { touch /shared/again; exit 1; }")
	create("succeeds-late", "OnFailure", "sleep 0.5")
	for name, want := range map[string]corev1.PodPhase{
		"succeeds": corev1.PodSucceeded, "fails": corev1.PodFailed, "retries": corev1.PodSucceeded, "succeeds-late": corev1.PodSucceeded,
	} {
		pod := n.await(t, name, string(want), func(pod *corev1.Pod) bool { return pod.Status.Phase == want })
		main := pod.Status.ContainerStatuses[0]
		if name == "fails" && (main.State.Terminated == nil || main.State.Terminated.ExitCode != 7) {
			t.Errorf("%s: %+v, want exit code 7", name, main)
		}
		if restarts := map[string]int32{"retries": 1}[name]; main.RestartCount != restarts {
			t.Errorf("%s has %d restarts, want %d", name, main.RestartCount, restarts)
		}
	}
	clustertest.Eventually(t, func() error {
		if left := n.group.List(); len(left) > 0 {
			return errors.New(left[0].Name + " remains in the group")
		}
		return nil
	})
}

// A finished pod that is deleted while a finalizer keeps it, as those of Jobs, stays finished as it was.
func TestDeletedPodThatEnded(t *testing.T) {
	n := newTestNode(t)
	pods := n.client.CoreV1().Pods(n.namespace)
	pod := n.create(t, "done", "{restartPolicy: Never, containers: [{name: main, image: sh, args: [-c, exit 0]}]}")
	finalizers := func(patch string) {
		t.Helper()
		if _, err := pods.Patch(t.Context(), pod.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":`+patch+`}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	finalizers(`["example.org/counted"]`)
	n.await(t, "done", "Succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	changes, err := pods.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=done"})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	n.delete(t, "done")
	// A later pod has run and is gone: the launcher has handled the deletion.
	n.create(t, "later", "{restartPolicy: Never, containers: [{name: main, image: sh, args: [-c, exit 0]}]}")
	n.await(t, "later", "Succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	finalizers("null")
	n.awaitRemoval(t, "done")
	for change := range changes.ResultChan() {
		if seen, ok := change.Object.(*corev1.Pod); ok && seen.Status.Phase != corev1.PodSucceeded {
			t.Errorf("the phase of the pod became %s", seen.Status.Phase)
		}
		if change.Type == watch.Deleted {
			return
		}
	}
}

const serverSpec = `
terminationGracePeriodSeconds: 5
containers:
- name: a
  image: server
  args: [serve-http, ":80", /files, $(NAME)]
  env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
  ports: [{name: http, containerPort: 80}]
  readinessProbe: {httpGet: {path: /not-ready, port: http}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 1}
  livenessProbe: {httpGet: {path: /not-live, port: 80}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 2}
  volumeMounts: [{name: files, mountPath: /files}]
volumes: [{name: files, emptyDir: {}}]
`

// Probes decide readiness and restarts, and the proxy follows them.
func TestProbesAndService(t *testing.T) {
	n := newTestNode(t)
	service, err := n.client.CoreV1().Services(n.namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"web": "yes"},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func() error {
		_, err := n.get(service, "/name")
		if err == nil || !strings.Contains(err.Error(), "503 no pod of Service "+n.namespace+"/web is ready") {
			return errors.New("without pods: " + errorText(err))
		}
		return nil
	})
	for _, name := range []string{"one", "two"} {
		n.create(t, name, serverSpec)
		label := []byte(`{"metadata":{"labels":{"web":"yes"}}}`)
		if _, err := n.client.CoreV1().Pods(n.namespace).Patch(t.Context(), name, types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		n.await(t, name, "ready", isReady)
	}
	awaitAnswers := func(want ...string) {
		t.Helper()
		clustertest.Eventually(t, func() error {
			answers := map[string]bool{}
			for range 6 {
				answer, err := n.get(service, "/name")
				if err != nil {
					return err
				}
				answers[answer] = true
			}
			if len(answers) != len(want) || !answers[want[0]] {
				return errors.New("answers: " + strings.Join(slices.Sorted(maps.Keys(answers)), ", "))
			}
			return nil
		})
	}
	awaitAnswers("one", "two")

	file := filepath.Join(n.dir, "pods", "one", "volumes", "files", "not-ready")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pod := n.await(t, "one", "unready", func(pod *corev1.Pod) bool { return !isReady(pod) })
	if pod.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("a failed readiness probe restarted the container: %+v", pod.Status.ContainerStatuses)
	}
	awaitAnswers("two")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n.await(t, "one", "ready again", isReady)
	awaitAnswers("one", "two")

	file = filepath.Join(n.dir, "pods", "two", "volumes", "files", "not-live")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.await(t, "two", "restarted", func(pod *corev1.Pod) bool { return pod.Status.ContainerStatuses[0].RestartCount > 0 })
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	pod = n.await(t, "two", "ready after its restart", isReady)
	if last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 128+15 {
		t.Errorf("last state: %+v, want an end by SIGTERM", last)
	}
	checkSlices(t, n)
}

// checkSlices checks that no endpoint is on loopback, which no pod could use.
func checkSlices(t *testing.T, n *testNode) {
	t.Helper()
	list, err := n.client.DiscoveryV1().EndpointSlices(n.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
	if err != nil || len(list.Items) != 1 || len(list.Items[0].Endpoints) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, endpoint := range list.Items[0].Endpoints {
		if !strings.HasPrefix(endpoint.Addresses[0], "198.18.1") {
			t.Errorf("endpoint %v", endpoint.Addresses)
		}
	}
}

// A deleted pod gets preStop, SIGTERM and its grace period, and is killed then.
func TestDeletion(t *testing.T) {
	n := newTestNode(t)
	script := func(name string) string {
		return "containers: [{name: a, image: sh, lifecycle: {preStop: {sleep: {seconds: 1}}}, " +
			"args: [-c, \"trap 'echo TERM; test " + name + " = quick && exit 0' TERM; echo up; while :; do sleep 0.1; done\"]}]\n"
	}
	n.create(t, "quick", "terminationGracePeriodSeconds: 3600\n"+script("quick"))
	n.create(t, "slow", "terminationGracePeriodSeconds: 3\n"+script("slow"))
	for _, name := range []string{"quick", "slow"} {
		awaitFile(t, filepath.Join(n.dir, "logs", name+".log"), func(text string) bool { return strings.Contains(text, "up\n") })
	}
	begin := time.Now()
	n.delete(t, "quick")
	n.delete(t, "slow")
	n.awaitRemoval(t, "quick")
	if took := time.Since(begin); took < time.Second {
		t.Errorf("the pod that obeys SIGTERM ended after %s, want a second for preStop", took)
	}
	n.awaitRemoval(t, "slow")
	if took := time.Since(begin); took < 3*time.Second {
		t.Errorf("the pod that ignores SIGTERM was killed after %s, before its grace period of 3s", took)
	}
	for _, name := range []string{"quick", "slow"} {
		awaitFile(t, filepath.Join(n.dir, "logs", name+".log"), func(text string) bool { return strings.Contains(text, "TERM\n") })
		if _, err := os.Stat(filepath.Join(n.dir, "pods", name)); !os.IsNotExist(err) {
			t.Errorf("the folder of %s remains: %v", name, err)
		}
	}
}

// A second deletion shortens the grace period.
func TestDeletionAtOnce(t *testing.T) {
	n := newTestNode(t)
	n.create(t, "stubborn", "terminationGracePeriodSeconds: 3600\ncontainers: [{name: a, image: sh, args: [-c, \"trap '' TERM; echo up; while :; do sleep 0.1; done\"]}]\n")
	awaitFile(t, filepath.Join(n.dir, "logs", "stubborn.log"), func(text string) bool { return strings.Contains(text, "up\n") })
	n.delete(t, "stubborn")
	now := int64(0)
	err := n.client.CoreV1().Pods(n.namespace).Delete(t.Context(), "stubborn", metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func() error {
		if left := n.group.List(); len(left) > 0 {
			return errors.New("the process of a removed pod runs")
		}
		return nil
	})
}

// The next launcher continues the pods of one that ended.
func TestNextLauncherContinues(t *testing.T) {
	n := newTestNode(t)
	n.create(t, "stays", serverSpec)
	first := n.await(t, "stays", "ready", isReady)
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if left := n.group.List(); len(left) > 0 {
		t.Errorf("left %+v", left)
	}
	n.start()
	again := n.await(t, "stays", "started again", func(pod *corev1.Pod) bool {
		return isReady(pod) && pod.Status.ContainerStatuses[0].RestartCount == 1
	})
	if again.UID != first.UID {
		t.Error("it is another pod")
	}
}

func errorText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}
