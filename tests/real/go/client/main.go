// What users do with franz-go, and what it sees of quotas. Arguments: bootstrap servers, a topic, a client id with low byte rates, a
// client id whose mutation quota one topic uses up. Prints one line for each step, the same as java/Client.java does.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var bootstrap, topic, slow, little string

// throttles counts how often brokers told a client to wait.
type throttles struct{ told atomic.Int64 }

func (t *throttles) OnBrokerThrottle(kgo.BrokerMetadata, time.Duration, bool) { t.told.Add(1) }

func main() {
	bootstrap, topic, slow, little = os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	client, err := connect(topic, nil)
	if err != nil {
		return err
	}
	admin := kadm.NewClient(client)
	defer admin.Close()
	if err := create(ctx, admin, topic, 3); err != nil {
		return err
	}
	if err := create(ctx, admin, topic+"-slow", 1); err != nil {
		return err
	}
	fmt.Println("created")
	if _, err := produce(ctx, topic, topic, 300, ""); err != nil {
		return err
	}
	fmt.Println("produced")
	if _, err := consume(ctx, topic, topic, 300); err != nil {
		return err
	}
	offsets, err := admin.FetchOffsets(ctx, topic)
	if err != nil {
		return err
	}
	var committed int64
	offsets.Each(func(o kadm.OffsetResponse) { committed += o.At })
	fmt.Println("committed", committed)
	throttled, err := produce(ctx, topic+"-slow", slow, 10, strings.Repeat("x", 10_000))
	if err != nil {
		return err
	}
	fmt.Println("producer throttled", throttled)
	throttled, err = consume(ctx, topic+"-slow", slow, 10)
	if err != nil {
		return err
	}
	fmt.Println("consumer throttled", throttled)
	refused, err := refused(ctx)
	if err != nil {
		return err
	}
	fmt.Println("refused", refused)
	deleted, err := admin.DeleteTopics(ctx, topic, topic+"-slow")
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		return err
	}
	fmt.Println("deleted")
	return nil
}

func connect(clientID string, hook *throttles, more ...kgo.Opt) (*kgo.Client, error) {
	// What is compressed is too little to be slowed down.
	options := append([]kgo.Opt{kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ClientID(clientID),
		kgo.ProducerBatchCompression(kgo.NoCompression())}, more...)
	if hook != nil {
		options = append(options, kgo.WithHooks(hook))
	}
	return kgo.NewClient(options...)
}

func create(ctx context.Context, admin *kadm.Client, name string, partitions int32) error {
	made, err := admin.CreateTopic(ctx, partitions, 1, nil, name)
	if err != nil {
		return err
	}
	return made.Err
}

func produce(ctx context.Context, to, clientID string, count int, filler string) (bool, error) {
	hook := &throttles{}
	client, err := connect(clientID, hook)
	if err != nil {
		return false, err
	}
	defer client.Close()
	var records []*kgo.Record
	for i := range count {
		value := strconv.Itoa(i) + filler
		record := &kgo.Record{Topic: to, Key: []byte(strconv.Itoa(i)), Value: []byte(value)}
		if filler == "" {
			records = append(records, record)
		} else if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return false, err
		}
	}
	err = client.ProduceSync(ctx, records...).FirstErr()
	// Hooks are called beside the answer: the last may come after it.
	for wait := 0; filler != "" && hook.told.Load() == 0 && wait < 500; wait++ {
		time.Sleep(10 * time.Millisecond)
	}
	return hook.told.Load() > 0, err
}

// consume reads all records in a group, and says whether it was told to wait.
func consume(ctx context.Context, from, clientID string, count int) (bool, error) {
	hook := &throttles{}
	client, err := connect(clientID, hook, kgo.ConsumeTopics(from), kgo.ConsumerGroup(from), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(20_000))
	if err != nil {
		return false, err
	}
	defer client.Close()
	read, different := 0, map[string]bool{}
	for read < count {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return false, fmt.Errorf("only %d of %d records", read, count)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			read++
			different[string(r.Key)] = true
		})
	}
	fmt.Printf("consumed %d, %d of them different\n", read, len(different))
	return hook.told.Load() > 0, client.CommitUncommittedOffsets(ctx)
}

func refused(ctx context.Context) (bool, error) {
	hook := &throttles{}
	client, err := connect(little, hook)
	if err != nil {
		return false, err
	}
	admin := kadm.NewClient(client)
	defer admin.Close()
	if err := create(ctx, admin, topic+"-first", 5); err != nil {
		return false, err
	}
	err = create(ctx, admin, topic+"-second", 5)
	if err == nil || errors.Is(err, kerr.ThrottlingQuotaExceeded) {
		return err != nil && hook.told.Load() > 0, nil
	}
	return false, err
}
