//! A simulated cluster does what a cluster does, and does it the same way each time.

use std::time::Duration;

use anyhow::Result;
use protocol::{NodeId, Offset};
use testkit::sim::{ConsumerSettings, ProducerSettings, SimConfig, Simulation};

fn written_and_read(seed: u64) -> Result<Simulation> {
    let mut simulation = Simulation::new(SimConfig::new(seed))?;
    simulation.wait_until_all_live()?;
    simulation.create_topic("t", &[&[1, 2, 3]], &[])?;
    let partition = simulation.partition_id("t", 0)?;
    let settings = ProducerSettings { batches: 20, ..ProducerSettings::default() };
    let producer = simulation.add_producer(partition.clone(), settings);
    let consumer = simulation.add_consumer(partition, ConsumerSettings::default());
    simulation.run_until("20 batches written and read", Duration::from_secs(20), |simulation| {
        simulation.producer(producer).is_some_and(|producer| producer.is_done())
            && simulation
                .consumer(consumer)
                .is_some_and(|consumer| consumer.position() == Offset(20))
    })?;
    simulation.run_until("health", Duration::from_secs(5), Simulation::is_healthy)?;
    simulation.check_everything()?;
    Ok(simulation)
}

#[test]
fn three_nodes_elect_create_a_topic_produce_with_all_acks_and_consume() -> Result<()> {
    let simulation = written_and_read(1)?;
    for node in 1..=3 {
        let facts = simulation.replica(NodeId(node), "t", 0).expect("a replica");
        assert_eq!((facts.log_end, facts.high_watermark), (Offset(20), Offset(20)));
    }
    Ok(())
}

#[test]
fn the_same_seed_gives_the_same_trace_byte_for_byte() -> Result<()> {
    let first = written_and_read(7)?.trace_text();
    let second = written_and_read(7)?.trace_text();
    assert!(first == second, "two runs of one seed differ");
    assert_ne!(first, written_and_read(8)?.trace_text());
    Ok(())
}
