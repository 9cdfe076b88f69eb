// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// Node is a simulated node. As an [nvml.Library] it is the driver for the program that created it;
// [Node.Open] returns the driver for other programs. It is safe for concurrent use.
type Node struct {
	*session

	seed       string
	version    string
	clock      Clock
	latency    Latency
	order      Order
	reuseUUIDs bool

	mu      sync.Mutex
	hooks   Hooks
	faults  []*activeFault
	random  *rand.Rand
	calls   uint64
	changes uint64 // counts the changes of Snapshot
	denied  bool
	initErr error // Init's error, if it fails

	generation     uint64 // counts how often all programs had to call Init again
	createdDevices uint64 // counts all MIG devices ever created
	gpus           []*gpu // in the order of the configuration
}

var _ nvml.Library = (*Node)(nil)

// gpu is the state of one GPU.
type gpu struct {
	*modelSpec
	uuid             string
	activation       Activation
	resetsWithOthers bool // can only be reset with others

	index          int
	mode, pending  nvml.Mode
	held           bool // by a program that is not among the processes
	needsReset     bool // needs a reset
	lost, vanished bool
	instances      []*instance
	processes      []process // on the whole GPU
}

type instance struct {
	id              uint32
	profile         *mig.Profile
	start           int
	computeInstance *computeInstance
	sampledAt       time.Time // the last sample of its utilization, for all programs
}

type computeInstance struct {
	id        uint32
	uuid      string
	slices    int // fewer than the profile's if another program created it
	processes []process
}

type process struct {
	pid       uint32
	memoryMiB int64
	sm        int
}

// New returns a node after its first boot, without instances or processes. The error names the
// invalid field of the configuration.
func New(c Config) (*Node, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("simulated node: %w", err)
	}
	n := &Node{
		seed: c.Seed, version: c.DriverVersion, clock: c.Clock, latency: c.Latency, order: c.Order,
		reuseUUIDs: c.ReuseUUIDs, hooks: c.Hooks, random: newRandom(c.Seed, "order"),
	}
	n.session = &session{node: n}
	if n.version == "" {
		n.version = "550.54.15"
	}
	if n.clock == nil {
		n.clock = WallClock()
	}
	for i := range c.GPUs {
		n.gpus = append(n.gpus, newGPU(c.Seed, i, &c.GPUs[i]))
	}
	return n, nil
}

func newGPU(seed string, index int, c *GPU) *gpu {
	m, err := modelByName(c.Model)
	if err != nil { // validated before
		panic(err)
	}
	g := &gpu{
		modelSpec: m, uuid: c.UUID, activation: c.Activation, resetsWithOthers: c.ResetsWithOthers, index: index, mode: c.Mode,
		pending: c.Mode,
	}
	if g.uuid == "" {
		g.uuid = "GPU-" + deriveUUID(seed, "gpu", index)
	}
	if g.activation == ModelDefault {
		g.activation = AtReset
		if m.migModel != nil && m.migModel.ModeWithoutReset {
			g.activation = AtOnce
		}
	}
	return g
}

// session is one program that uses the driver, with its own Init.
type session struct {
	node       *Node
	inits      int
	generation uint64
}

// Open returns the driver for another program on the node. Each program calls Init itself.
func (n *Node) Open() nvml.Library { return &session{node: n} }

func (p *session) isReady() bool {
	return p.inits > 0 && p.generation == p.node.generation && p.node.initErr == nil
}

// noResult is the result of calls without one.
type noResult struct{}

// Init implements [nvml.Library]. Each Init needs a Shutdown.
func (p *session) Init() error {
	_, err := simulate(p, Call{Method: "Init"}, func() (noResult, error) {
		if p.node.initErr != nil {
			return noResult{}, p.node.initErr
		}
		if p.generation != p.node.generation {
			p.inits, p.generation = 0, p.node.generation
		}
		p.inits++
		return noResult{}, nil
	})
	return err
}

// Shutdown implements [nvml.Library].
func (p *session) Shutdown() error {
	_, err := simulate(p, Call{Method: "Shutdown"}, func() (noResult, error) {
		p.inits--
		return noResult{}, nil
	})
	return err
}

// DriverVersion implements [nvml.Library].
func (p *session) DriverVersion() (string, error) {
	return simulate(p, Call{Method: "DriverVersion"}, func() (string, error) { return p.node.version, nil })
}

var _ nvml.Library = (*session)(nil)

// deriveUUID returns the same UUID for the same words, in the form of version 5.
func deriveUUID(words ...any) string {
	sum := digest(words...)
	sum[6] = sum[6]&0x0f | 0x50
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// newRandom returns a pseudo-random source that depends only on the words.
func newRandom(words ...any) *rand.Rand {
	sum := digest(words...)
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(sum[0:8]), binary.LittleEndian.Uint64(sum[8:16])))
}

func digest(words ...any) [sha256.Size]byte { return sha256.Sum256(fmt.Appendf(nil, "%q", words)) }

// shuffle shuffles a list.
func shuffle[T any](r *rand.Rand, list []T) {
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}
