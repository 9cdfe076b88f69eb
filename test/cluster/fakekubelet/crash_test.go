// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/fakekubelet/devices"
)

// A process that is killed between any two of its writes has promised nothing
// that the next one does not keep.
func TestKilledAtAnyWrite(t *testing.T) {
	w := newWorld(t)
	for _, arrives := range []bool{true, false} {
		for writes := range int32(4) {
			t.Run(fmt.Sprintf("after %d, the next one arrives: %t", writes, arrives), func(t *testing.T) {
				w := &world{t: t, cluster: w.cluster, client: w.client, namespace: w.namespace}
				name := fmt.Sprintf("dgx-dies-%d-%t", writes, arrives)
				dir := w.ownNode(name)
				node := fakekubelet.DGXA100(name, "dgx")
				t.Cleanup(w.clear)
				for _, pod := range []string{"a", "b", "c"} {
					w.create(newPod(pod).bound(name).gpus(2))
				}
				dying := &mortal{arrives: arrives, dead: make(chan struct{})}
				dying.left.Store(writes)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				api := w.cluster.Config()
				api.Wrap(dying.wrap)
				go func() {
					done <- fakekubelet.Run(ctx, fakekubelet.Config{API: api, Dir: dir, Nodes: []fakekubelet.Node{node}})
				}()
				if writes < 3 { // else there is nothing left to write
					<-dying.dead
				} else {
					w.reaches("c", corev1.PodRunning)
				}
				cancel()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				promised := checkpointed(t, dir, name)

				defer w.runOne(dir, node)()
				held := map[string]string{}
				for _, pod := range []string{"a", "b", "c"} {
					made := w.reaches(pod, corev1.PodRunning)
					now := checkpointed(t, dir, name)[string(made.UID)]
					if before, ok := promised[string(made.UID)]; ok && !slices.Equal(before, now) {
						t.Errorf("pod %s was promised %v and holds %v", pod, before, now)
					}
					for _, id := range now {
						held[id] = pod
					}
				}
				if len(held) != 6 {
					t.Errorf("three pods of two devices hold %v", held)
				}
			})
		}
	}
}

// checkpointed returns the devices by pod UID in a node's checkpoint.
func checkpointed(t *testing.T, dir, node string) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "nodes", node, "kubelet_internal_checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	pods, err := devices.Decode(node, raw)
	if err != nil {
		t.Fatal(err)
	}
	held := map[string][]string{}
	for _, pod := range pods {
		held[pod.UID] = pod.Devices()
	}
	return held
}

// mortal is a process's way to the API server that breaks at a pod's status:
// after a number of writes none is answered any more, and the next one may still
// arrive.
type mortal struct {
	http.RoundTripper
	left    atomic.Int32
	arrives bool
	dead    chan struct{}
	die     sync.Once
}

func (m *mortal) wrap(next http.RoundTripper) http.RoundTripper {
	m.RoundTripper = next
	return m
}

func (m *mortal) RoundTrip(request *http.Request) (*http.Response, error) {
	status := request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "/pods/")
	if !status || m.left.Add(-1) >= 0 {
		return m.RoundTripper.RoundTrip(request)
	}
	defer m.die.Do(func() { close(m.dead) })
	if m.arrives && m.left.Load() == -1 {
		if response, err := m.RoundTripper.RoundTrip(request); err == nil {
			response.Body.Close()
		}
	}
	return nil, errors.New("this process is dead")
}
