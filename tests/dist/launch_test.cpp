#include "dist/launch.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/errors.h"
#include "dist/rendezvous.h"

namespace renorm::dist {
namespace {

using Variables = std::map<std::string, std::string>;

Launch launch_with(const Variables& variables) {
  return launch_of([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string refusal(const Variables& variables) {
  try {
    launch_with(variables);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_NAMESPACE", "7864321"}};
const Variables kTorchrun = {{"RANK", "1"},
                             {"WORLD_SIZE", "2"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "29500"}};
const Variables kSlurm = {{"SLURM_PROCID", "9"},  {"SLURM_STEP_NUM_TASKS", "11"},
                          {"SLURM_NODEID", "2"},  {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                          {"SLURM_LOCALID", "1"}, {"SLURM_JOB_ID", "17"}};

TEST(Launch, WithoutVariablesTheProcessIsAlone) {
  const Launch launch = launch_with({});
  EXPECT_TRUE(launch.is_alone());
  EXPECT_EQ(launch.rank, 0);
  EXPECT_EQ(launch.engine, "");
}

TEST(Launch, ReadsTheVariablesOfOpenMpi) {
  const Launch launch = launch_with(kOpenMpi);
  EXPECT_EQ(launch.engine, "mpirun");
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.size, 4);
  EXPECT_EQ(launch.local_size, 2);
  EXPECT_FALSE(launch.is_on_one_machine());
  EXPECT_NE(launch.job, "");
  EXPECT_NE(launch.job, launch_with(with(kOpenMpi, "PMIX_NAMESPACE", "7864322")).job);
}

TEST(Launch, ReadsTheVariablesOfTorchrun) {
  Launch launch = launch_with(kTorchrun);
  EXPECT_EQ(launch.engine, "RANK and WORLD_SIZE");
  EXPECT_EQ(launch.rank, 1);
  EXPECT_TRUE(launch.is_on_one_machine());
  EXPECT_EQ(launch.address, "node1:29500");
  EXPECT_FALSE(launch.engine_listens);
  launch = launch_with(
      with(with(kTorchrun, "TORCHELASTIC_RUN_ID", "none"), "TORCHELASTIC_USE_AGENT_STORE", "True"));
  EXPECT_EQ(launch.engine, "torchrun");
  EXPECT_TRUE(launch.engine_listens);
}

TEST(Launch, ReadsTheVariablesOfSlurm) {
  Launch launch = launch_with(kSlurm);
  EXPECT_EQ(launch.engine, "srun");
  EXPECT_EQ(launch.rank, 9);
  EXPECT_EQ(launch.size, 11);
  EXPECT_EQ(launch.local_size, 3);
  launch = launch_with(with(kSlurm, "SLURM_NODEID", "1"));
  EXPECT_EQ(launch.local_size, 4);
}

// With the address alone, nothing tells how many processes share a machine.
TEST(Launch, NeedsNoLocalSize) {
  Variables variables = kTorchrun;
  variables.erase("LOCAL_WORLD_SIZE");
  const Launch launch = launch_with(variables);
  EXPECT_EQ(launch.rank, 1);
  EXPECT_FALSE(launch.is_on_one_machine());
  variables = kSlurm;
  variables.erase("SLURM_STEP_TASKS_PER_NODE");
  EXPECT_EQ(launch_with(variables).rank, 9);
}

// A batch script has SLURM_PROCID too, and one task.
TEST(Launch, ABatchScriptOfSlurmIsAlone) {
  EXPECT_TRUE(launch_with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).is_alone());
  EXPECT_TRUE(launch_with({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}).is_alone());
}

TEST(Launch, RefusesIncompleteAndInvalidVariables) {
  EXPECT_EQ(refusal({{"WORLD_SIZE", "2"}}), "the environment variable RANK is missing");
  EXPECT_EQ(refusal({{"RANK", "1"}}), "the environment variable WORLD_SIZE is missing");
  EXPECT_EQ(refusal({{"WORLD_SIZE", "two"}, {"RANK", "0"}}),
            "the environment variable WORLD_SIZE must be a whole number from 1 to 1048576, got 'two'");
  EXPECT_EQ(refusal({{"WORLD_SIZE", "2"}, {"RANK", "2"}}),
            "the environment variable RANK must be a whole number from 0 to 1, got '2'");
  Variables variables = kTorchrun;
  variables.erase("MASTER_PORT");
  EXPECT_EQ(refusal(variables),
            "the environment variable MASTER_PORT is missing; set both, MASTER_ADDR and MASTER_PORT");
}

TEST(Launch, ThreadsShareTheMachine) {
  EXPECT_EQ(threads_per_process(1000000), 1);
  EXPECT_GE(threads_per_process(1), 1);
}

TEST(Rendezvous, OnOneMachineIsAFolderOfTheRun) {
  Launch launch;
  launch.size = launch.local_size = 2;
  launch.job = "abc";
  const Rendezvous rendezvous = rendezvous_of(launch, "", "runs/a");
  EXPECT_EQ(rendezvous.folder, "runs/a/.rendezvous-abc");
  EXPECT_TRUE(rendezvous.is_local);
  // Also with an address, at which others could listen in.
  EXPECT_NE(rendezvous_of(launch_with(kTorchrun), "", "runs/a").folder, "");
}

TEST(Rendezvous, TakesAnAddressOrAFolder) {
  Launch launch = launch_with(kOpenMpi);
  Rendezvous rendezvous = rendezvous_of(launch, "tcp://node1:29500", "runs/a");
  EXPECT_EQ(rendezvous.host, "node1");
  EXPECT_EQ(rendezvous.port, 29500);
  EXPECT_EQ(rendezvous.text(), "tcp://node1:29500");
  EXPECT_FALSE(rendezvous.is_local);
  rendezvous = rendezvous_of(launch, "/shared", "runs/a");
  EXPECT_EQ(rendezvous.folder, "/shared/.rendezvous-" + launch.job);
  Variables variables = with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True");
  EXPECT_EQ(rendezvous_of(launch_with(variables), "", "runs/a").text(), "tcp://node1:29500");
  variables = kTorchrun;
  variables.erase("LOCAL_WORLD_SIZE");
  EXPECT_EQ(rendezvous_of(launch_with(variables), "", "runs/a").text(), "tcp://node1:29500");
  EXPECT_TRUE(rendezvous_of(launch, "tcp://127.0.0.1:29500", "runs/a").is_local);
}

TEST(Rendezvous, RefusesWhatIsNone) {
  const Launch launch = launch_with(kOpenMpi);
  EXPECT_THROW(rendezvous_of(launch, "", "runs/a"), UsageError);  // two machines
  EXPECT_THROW(rendezvous_of(launch, "udp://node1:1", "runs/a"), UsageError);
  EXPECT_THROW(rendezvous_of(launch, "tcp://node1", "runs/a"), UsageError);
  EXPECT_THROW(rendezvous_of(launch, "tcp://:1", "runs/a"), UsageError);
  EXPECT_THROW(rendezvous_of(launch, "tcp://node1:0", "runs/a"), UsageError);
  EXPECT_THROW(rendezvous_of(launch, "tcp://node1:65536", "runs/a"), UsageError);
}

}  // namespace
}  // namespace renorm::dist
