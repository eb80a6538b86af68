// Drives a peer with the official gateway client, call by call, and prints what came of each as a JSON line.
//
// node client.mjs CONFIG.json, where CONFIG.json has: address, tlsRoot, serverName (may be null), mspId, certificate,
// key, channel, contract, otherMspId. It takes any address: a peer of Fabric's with the same contract answers alike.
import * as grpc from '@grpc/grpc-js';
import { checkpointers, connect, CommitError, GatewayError, hash, signers, StatusCode } from '@hyperledger/fabric-gateway';
import * as crypto from 'node:crypto';
import * as fs from 'node:fs';

const config = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const utf8 = new TextDecoder();
const privateKey = crypto.createPrivateKey(fs.readFileSync(config.key));
const identity = { mspId: config.mspId, credentials: fs.readFileSync(config.certificate) };
const signer = signers.newPrivateKeySigner(privateKey);
const options = config.serverName ? { 'grpc.ssl_target_name_override': config.serverName } : {};
const client = new grpc.Client(config.address, grpc.credentials.createSsl(fs.readFileSync(config.tlsRoot)), options);
const soon = () => ({ deadline: Date.now() + 30_000 });
const gateway = connect({
    client, identity, signer, hash: hash.sha256,
    evaluateOptions: soon, endorseOptions: soon, submitOptions: soon, commitStatusOptions: soon,
});
const network = gateway.getNetwork(config.channel);
const contract = network.getContract(config.contract);
const prefix = crypto.randomBytes(4).toString('hex');
const text = bytes => utf8.decode(bytes);

async function step(name, action) {
    try {
        console.log(JSON.stringify({ name, value: await action() }));
    } catch (error) {
        const found = { name, error: error.constructor.name, message: error.message };
        if (error instanceof GatewayError) {
            found.code = StatusCode[error.code] ?? grpc.status[error.code];
            found.details = error.details;
        }
        if (error instanceof CommitError) {
            found.code = error.code;
        }
        console.log(JSON.stringify(found));
    }
}

async function first(events, count, pick) {
    const found = [];
    try {
        for await (const event of events) {
            found.push(pick(event));
            if (found.length === count) {
                break;
            }
        }
    } finally {
        events.close();
    }
    return found;
}

const car = `${prefix}-car`;
let created;
await step('evaluate fails in the chaincode', async () => text(await contract.evaluateTransaction('read', 'nowhere')));
await step('submit', async () => text(await contract.submitTransaction('create', car, 'Anna', '300')));
await step('evaluate', async () => JSON.parse(text(await contract.evaluateTransaction('read', car))));
await step('submit fails in the chaincode', async () => text(await contract.submitTransaction('create', car, 'Eve', '1')));
await step('submit async, then status', async () => {
    const commit = await contract.submitAsync('transfer', { arguments: [car, 'Bob'] });
    const status = await commit.getStatus();
    created = status;
    return { result: JSON.parse(text(commit.getResult())), successful: status.successful, code: status.code,
             block: Number(status.blockNumber) };
});
await step('status of a transaction that is long committed', async () => {
    const proposal = contract.newProposal('update', { arguments: [car, '301'] });
    const transaction = await proposal.endorse();
    const commit = await transaction.submit();
    await commit.getStatus();
    const again = gateway.newCommit(commit.getBytes());
    return (await again.getStatus()).code;
});
await step('sign offline', async () => {
    const sign = async digest => signer(digest);
    const bare = connect({ client, identity });
    const unsignedProposal = bare.getNetwork(config.channel).getContract(config.contract)
        .newProposal('update', { arguments: [car, '302'] });
    const proposal = bare.newSignedProposal(unsignedProposal.getBytes(), await sign(unsignedProposal.getDigest()));
    const unsignedTransaction = await proposal.endorse();
    const transaction = bare.newSignedTransaction(
        unsignedTransaction.getBytes(), await sign(unsignedTransaction.getDigest()));
    const unsignedCommit = await transaction.submit();
    const commit = bare.newSignedCommit(unsignedCommit.getBytes(), await sign(unsignedCommit.getDigest()));
    return (await commit.getStatus()).code;
});
await step('endorsing organisations', async () => {
    const proposal = contract.newProposal('update', {
        arguments: [car, '303'], endorsingOrganizations: [config.mspId, config.otherMspId],
    });
    return (await (await (await proposal.endorse()).submit()).getStatus()).code;
});
await step('an organisation that has no peer', async () => {
    await contract.submit('update', { arguments: [car, '304'], endorsingOrganizations: ['NobodyMSP'] });
});
await step('one organisation is too few', async () => {
    const commit = await contract.submitAsync('update', {
        arguments: [car, '305'], endorsingOrganizations: [config.mspId],
    });
    return (await commit.getStatus()).code;
});
await step('transient data', async () =>
    JSON.parse(text(await contract.evaluate('read', { arguments: [car], transientData: { secret: 'hush' } }))).value);
await step('a conflict', async () => {
    const proposals = ['306', '307'].map(value => contract.newProposal('update', { arguments: [car, value] }));
    const transactions = await Promise.all(proposals.map(proposal => proposal.endorse()));
    const commits = await Promise.all(transactions.map(transaction => transaction.submit()));
    const codes = await Promise.all(commits.map(async commit => (await commit.getStatus()).code));
    return codes.sort((one, other) => one - other);
});
await step('a conflict is a commit error', async () => {
    const slow = await contract.newProposal('update', { arguments: [car, '308'] }).endorse();
    await contract.submitTransaction('update', car, '309');
    const status = await (await slow.submit()).getStatus();
    return { successful: status.successful, code: status.code };
});
await step('a deadline that has passed', async () =>
    contract.evaluate('read', { arguments: [car] }).then(() => 'answered', error => { throw error; }));
await step('deadline exceeded', async () => {
    const late = connect({ client, identity, signer, evaluateOptions: () => ({ deadline: Date.now() - 1 }) });
    await late.getNetwork(config.channel).getContract(config.contract).evaluateTransaction('read', car);
});
await step('a channel that is not there', async () =>
    gateway.getNetwork('nowhere').getContract(config.contract).submitTransaction('read', car));
await step('a chaincode that is not there', async () =>
    network.getContract('nothing').evaluateTransaction('read', car));
await step('chaincode events from a block on', async () => {
    const events = await network.getChaincodeEvents(config.contract, { startBlock: created.blockNumber });
    return first(events, 1, event => ({
        name: event.eventName, payload: JSON.parse(text(event.payload)), block: Number(event.blockNumber),
        same: event.transactionId === created.transactionId,
    }));
});
await step('chaincode events behind a transaction', async () => {
    const checkpointer = checkpointers.inMemory();
    await checkpointer.checkpointTransaction(created.blockNumber, created.transactionId);
    const events = await network.getChaincodeEvents(config.contract, { checkpoint: checkpointer });
    const other = `${prefix}-other`;
    await contract.submitTransaction('create', other, 'Carla', '5');
    return first(events, 1, event => JSON.parse(text(event.payload)).id === other);
});
await step('block events', async () => {
    const events = await network.getBlockEvents({ startBlock: BigInt(0) });
    return first(events, 3, block => Number(block.getHeader().getNumber()));
});
await step('filtered block events', async () => {
    const events = await network.getFilteredBlockEvents({ startBlock: created.blockNumber });
    return first(events, 1, block => ({
        channel: block.getChannelId(), number: Number(block.getNumber()),
        seen: block.getFilteredTransactionsList().some(
            transaction => transaction.getTxid() === created.transactionId && transaction.getTxValidationCode() === 0),
    }));
});
await step('block and private data events', async () => {
    const events = await network.getBlockAndPrivateDataEvents({ startBlock: BigInt(1) });
    return first(events, 1, both => Number(both.getBlock().getHeader().getNumber()));
});
gateway.close();
client.close();
